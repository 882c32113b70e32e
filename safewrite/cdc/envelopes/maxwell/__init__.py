"""Records of Maxwell, in JSON."""
