"""Converts arrays exactly, and names the rows whose values do not fit."""
