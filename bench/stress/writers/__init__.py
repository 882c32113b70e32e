"""Runs writer programs, one for each library, in the environment of its own library."""
