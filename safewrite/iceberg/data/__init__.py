"""Encodes data files and manifests of an Iceberg table."""
