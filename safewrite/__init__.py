"""No silent loss under parallel writers of lake tables."""
