"""Rows of the records of one table: values, metadata, changes by key."""
