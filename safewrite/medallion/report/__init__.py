"""Says what a run did: as an object, a page and metrics."""
