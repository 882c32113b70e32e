"""Words the error of a library that the command line needs, and that cannot be imported."""

from __future__ import annotations

from safewrite.errors import MissingExtraError


def unfit_library(error: ImportError) -> MissingExtraError:
    """The error for a library that safewrite itself needs, and that cannot be imported as it is installed."""
    return MissingExtraError(
        f"A library that the command line needs cannot be imported: {type(error).__name__}: {error}. Nothing was read or "
        "written. Install safewrite again, without --no-deps: pip then takes versions that go together (NumPy 1 needs "
        "pyarrow before 26)."
    )
