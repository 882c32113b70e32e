"""The whole of safewrite on real servers: killed, paused, lied to and raced."""
