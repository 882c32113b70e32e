"""Loses answers, refuses and delays by plan, in front of a server."""
