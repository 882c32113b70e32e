"""Plans a stress run: writers, faults, arms."""
