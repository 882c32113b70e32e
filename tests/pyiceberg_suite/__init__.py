"""PyIceberg's own tests through SafeCatalog: `make test-pyiceberg`."""
