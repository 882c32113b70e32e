"""Judges what the error of a plain write in Spark says of the table, by safewrite's documentation."""

from __future__ import annotations

import re

_IN_DOUBT = re.compile(r"landed\(session, '(\S+)', (\d+), '(\S+)'\)")
_REFUSED = re.compile(r"IOException: (\w+Error): [^\n]*[Nn]othing was (?:committed|written)")
_OUTRUN = re.compile(r"DELTA_CONCURRENT_\w+|DELTA_METADATA_CHANGED")


def doubt_of(text: str) -> tuple[str, int, str] | None:
    """The arguments of ``safewrite.spark.landed`` for a commit in doubt: table, version, transaction."""
    found = _IN_DOUBT.search(text)
    return (found[1], int(found[2]), found[3]) if found is not None else None


def refusal_of(text: str) -> str | None:
    """The name of an error that says that nothing was committed; None where the text does not say so."""
    if doubt_of(text) is not None:
        return None
    if (refused := _REFUSED.search(text)) is not None:
        return refused[1]
    outrun = _OUTRUN.search(text)
    return outrun[0] if outrun is not None else None
