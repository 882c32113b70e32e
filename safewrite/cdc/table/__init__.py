"""One table's share of a batch: decoded, prepared, committed, here and by tasks."""
