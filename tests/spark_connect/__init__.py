"""Spark Connect, with a client and a server of its own: ``make test-spark-connect``."""
