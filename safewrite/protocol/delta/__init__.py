"""The Delta commit: one version of the log, claimed in the lock table or created conditionally."""
