"""Latency, throughput, memory and imports, side by side with deltalake on the same servers in the same run."""
