"""Makes texts of what others made, and keeps secrets out of them."""
