"""Lets a package hand out names of its modules without importing them itself.

Python takes the lock of a module before that of its package.  Where a package imports its own modules, two threads that import from
it for the first time can wait for each other; Python then lets one of them go on with a module that is half there (CPython's
``importlib._bootstrap``, ``_DeadlockError``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of a package (PEP 562) that has these names, each in the module that it is given with."""

    def found(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return found, names
