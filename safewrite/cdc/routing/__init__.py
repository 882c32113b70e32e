"""Where a record goes: its table, its source, or a dead letter with the reason."""
