"""Ships models, faults and checkers for users' own tests."""
