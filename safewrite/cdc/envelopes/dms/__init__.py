"""Records of AWS DMS, in JSON."""
