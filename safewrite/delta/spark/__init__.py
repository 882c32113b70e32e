"""Writes Delta tables through Spark's own Delta library."""
