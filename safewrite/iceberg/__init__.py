"""Iceberg tables: commits through a catalog that know whether they landed."""
