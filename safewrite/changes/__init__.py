"""Decides what a change log does to a table, by key and sequence: one meaning for both formats and both engines."""
