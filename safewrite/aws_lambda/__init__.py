"""Lambda functions: ids of events as keys, and partial batch answers."""
