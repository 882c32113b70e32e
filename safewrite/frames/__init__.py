"""Converts pandas, Arrow, polars and dicts to Arrow under a table's schema, by name and unaltered."""
