"""Writer processes under faults on real servers, and the report of what became of their rows."""
