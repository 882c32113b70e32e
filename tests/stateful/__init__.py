"""Random histories of several writers on one table in memory, against a dict oracle."""
