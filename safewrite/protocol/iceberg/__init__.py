"""The Iceberg commit: a catalog's compare-and-set that knows whether it landed."""
