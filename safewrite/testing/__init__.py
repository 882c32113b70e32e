"""Models, faults and checkers, shipped for users' own tests."""
