"""Tests of safewrite.aws_lambda."""
