"""Reads rows of an Iceberg table for callers."""
