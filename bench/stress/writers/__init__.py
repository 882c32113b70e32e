"""Writer programs, one for each library; each runs in the environment of its own library."""
