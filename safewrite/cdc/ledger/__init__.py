"""Opens the tables of a job and keeps its ledger: what came in, and what became of it."""
