"""Tests of safewrite.metrics."""
