"""Runs real servers, faults and measurements that show whether safewrite keeps its promise."""
