"""Records of any shape: each is a row of the table of its topic, or of one that a field names, and none changes another."""
