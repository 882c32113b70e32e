"""Statistics of a file in a table's own types as the text that add actions have (PROTOCOL.md, "Per-file Statistics")."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any


def stats_text(parsed: Any) -> str | None:
    """The text of what a checkpoint has in ``stats_parsed``; None where it has nothing."""
    return None if parsed is None else _text(parsed)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        parts = {name: part for name, part in value.items() if part is not None}
        inner = ",".join(
            f"{json.dumps(name, ensure_ascii=False)}:{_text(part)}" for name, part in parts.items()
        )
        return "{" + inner + "}"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return json.dumps(
            f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}{'Z' if value.tzinfo else ''}"
        )
    if isinstance(value, dt.date):
        return json.dumps(value.isoformat())
    return json.dumps(value, ensure_ascii=False)
