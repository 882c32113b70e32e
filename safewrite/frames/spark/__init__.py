"""Checks, counts and fingerprints Spark DataFrames."""
