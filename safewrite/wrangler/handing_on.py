"""Hands names that safewrite has not on to awswrangler, so that one import serves a program that reads by it too."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_UNSAFE = {
    "s3.to_deltalake_streaming": "wr.s3.to_deltalake once for each frame, or safewrite.open(...).append of a reader of batches",
    "s3.to_iceberg": "wr.athena.to_iceberg with catalog=, or safewrite.open(..., catalog=...).append",
}
"""Writers of awswrangler that safewrite does not stand in for, and what does."""


def handed_on(module: str, name: str) -> Any:
    """What awswrangler has under this name; ``module`` is ``""``, ``"s3"`` or ``"athena"``.

    Raises:
        AttributeError: it has none, is not installed, or the name is of a writer whose commits are not safe.
    """
    full = f"{module}.{name}".lstrip(".")
    if name.startswith("__") and name != "__version__":  # what Python itself asks a module for
        raise AttributeError(f"safewrite.wrangler has no {full}")
    if full in _UNSAFE:
        raise AttributeError(
            f"safewrite.wrangler does not hand {full} on: its commits are those of awswrangler. Nothing was written. Call "
            f"{_UNSAFE[full]}; or awswrangler.{full} by its own name, if no other writer is there."
        )
    try:
        found = import_module(f"awswrangler.{module}".rstrip("."))
    except ModuleNotFoundError as error:
        raise AttributeError(
            f"safewrite.wrangler has no {full} of its own, and awswrangler, which may have it, cannot be imported ({error}). "
            "Install awswrangler, or call what safewrite.wrangler has: s3.to_deltalake, athena.to_iceberg, register_deltalake."
        ) from error
    return getattr(found, name)


def names_of(module: str, own: list[str]) -> list[str]:
    """What ``dir()`` shows: own names, and awswrangler's where it is installed."""
    try:
        found = import_module(f"awswrangler.{module}".rstrip("."))
    except ModuleNotFoundError:
        return sorted(own)
    return sorted({*own, *dir(found)})
