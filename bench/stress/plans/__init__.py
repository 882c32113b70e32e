"""Plans of a stress run: writers, faults, arms."""
