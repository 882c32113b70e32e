"""Turns a caller's data into one snapshot of an Iceberg table."""
