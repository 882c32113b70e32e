"""Compares awswrangler's calls with safewrite's: ``python -m bench.wrangler`` prints the table of docs/wrangler.md."""
