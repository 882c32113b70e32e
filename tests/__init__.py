"""Tests of safewrite; names are sentences, servers are local."""
