"""Tables that safewrite wrote, killed or not, as Spark's Delta reader sees them, and the other way round."""
