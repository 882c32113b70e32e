"""Reads rows of a Delta table for callers."""
