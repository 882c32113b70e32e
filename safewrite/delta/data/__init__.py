"""Encodes data files of a Delta table, and reads their footers."""
