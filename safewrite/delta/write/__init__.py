"""Turns a caller's data into one commit of a Delta table."""
