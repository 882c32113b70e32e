"""Compares what all tables of a job hold with the files and with each other."""
