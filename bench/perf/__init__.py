"""Measures latency, throughput, memory and imports against deltalake, on the same servers in the same run."""
