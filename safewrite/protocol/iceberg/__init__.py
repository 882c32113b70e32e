"""Commits to an Iceberg catalog by compare-and-set, and knows whether the commit landed."""
