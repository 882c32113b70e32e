"""Proxies that lose answers, refuse and delay by plan."""
