"""Changes of many calls, and of many tables, in one commit or job."""
