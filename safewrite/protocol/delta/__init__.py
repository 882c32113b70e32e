"""Commits one version of a Delta log, claimed in the lock table or created conditionally."""
