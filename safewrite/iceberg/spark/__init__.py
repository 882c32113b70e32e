"""Writes data files of an Iceberg table with Spark."""
