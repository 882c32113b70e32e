"""Examines and repairs Iceberg tables."""
