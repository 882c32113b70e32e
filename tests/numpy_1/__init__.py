"""Spark 3.5, with its own Python, Delta 3.3 and the Iceberg runtime for it: ``make test-spark35``."""
