"""Runs writer processes under faults on real servers, and reports what became of their rows."""
