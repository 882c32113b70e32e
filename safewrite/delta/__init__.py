"""Delta tables: the log, the state that a write depends on, checkpoints, and what a commit holds."""
