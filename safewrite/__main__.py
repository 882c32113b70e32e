"""Starts the ``safewrite`` command by ``python -m safewrite``."""

from safewrite.cli import main

if __name__ == "__main__":
    main()
