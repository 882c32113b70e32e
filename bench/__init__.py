"""Real servers, faults and measurements: what shows that safewrite keeps its promise."""
