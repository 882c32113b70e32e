"""Converts pandas, Arrow, polars and dicts to Arrow under a table's schema, by name and unaltered."""

from __future__ import annotations

from safewrite.frames.bulk_check import prepare_alike
from safewrite.frames.conform import conform
from safewrite.frames.fingerprint import Fingerprint, Fingerprinter
from safewrite.frames.prepare import Prepared, joined, prepare
from safewrite.frames.source import Frame, as_frame

__all__ = [
    "Fingerprint",
    "Fingerprinter",
    "Frame",
    "Prepared",
    "as_frame",
    "conform",
    "joined",
    "prepare",
    "prepare_alike",
]
