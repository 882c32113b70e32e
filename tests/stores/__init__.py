"""Tests of stores against the servers they are for."""
