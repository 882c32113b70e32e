"""Changes applied by tasks: read, look up, decide, write."""
