"""What changes by key mean: which one counts, what is remembered, what a batch says of itself."""
