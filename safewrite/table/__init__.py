"""A table of either format: its verbs, the loop around a write, and what a caller gets back."""
