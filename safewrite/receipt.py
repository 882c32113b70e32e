"""Describes an acknowledged write to its caller."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol


class Outcome(StrEnum):
    """How an acknowledged write came into the table."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already_committed"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof of one acknowledged write.

    ``version`` is the Delta version or the Iceberg snapshot id that holds the rows.  ``attempts``
    counts tries at a version number (1 without contention; 0 if the write was found already
    committed before any try).  ``rows`` and ``files`` are those written: 0 rows for a delete; ``files`` is 0, too,
    for a repeat of whose commit only the name is remembered.
    ``removed_rows`` counts the rows that this call removed; it is None where they were not counted: the write was
    committed before, Spark's own library committed it, or a removed file has no row count.  ``elapsed_s`` is monotonic time.
    ``copied_bytes`` is the size of the files that this call wrote of rows that stay, because other rows of their old files went
    (copy-on-write); None as for ``removed_rows``.
    ``changes`` counts, for ``apply_changes``, how many changes did what; it is None for a repeat whose commit the table
    no longer has (an expired snapshot, a log that was cleaned up), for only its key is remembered then.  ``txn`` is ``(app_id, version)``
    where the write was named by one.
    ``members`` is how many writes became visible in that version, of this process and others (1: this one alone; None: not counted),
    ``led_by_us`` whether this process committed it (None: a repeat), ``waited_s`` how long the write waited for another to commit it or for its turn.
    ``rebased`` counts the tries after the first before which the plan was brought to a newer base: what had been decided stood, but for keys
    that others changed.  So after ``attempts - 1 - rebased`` lost tries all was planned again.
    """

    outcome: Outcome
    table: str
    version: int
    rows: int
    files: int
    attempts: int
    elapsed_s: float
    key: str
    fingerprint: str
    txn: tuple[str, int] | None = None
    removed_rows: int | None = None
    changes: Mapping[str, int] | None = None
    copied_bytes: int | None = None
    members: int | None = None
    led_by_us: bool | None = True
    waited_s: float = 0.0
    rebased: int = 0

    @classmethod
    def recalled(cls, table: str, version: int, entry: Mapping[str, Any], elapsed_s: float) -> Receipt:
        """The receipt of a write as the table's history describes it (``key``, ``fingerprint``, ``rows``, ...)."""
        txn = entry.get("txn")
        return cls(
            outcome=Outcome.ALREADY_COMMITTED,
            table=table,
            version=version,
            rows=int(entry["rows"]),
            files=int(entry.get("files", 0)),
            attempts=0,
            elapsed_s=elapsed_s,
            key=entry["key"],
            fingerprint=entry["fingerprint"],
            txn=(str(txn[0]), int(txn[1])) if isinstance(txn, list) else None,
            changes=entry.get("changes"),
            led_by_us=None,
        )

    def __str__(self) -> str:
        if self.removed_rows is None and not self.rows and self.changes is None:
            done = ["an unknown number of rows removed"]  # "0 rows" would read as if none went
        else:
            done = [_counted(self.rows, "row"), _counted(self.files, "file")]
        if self.removed_rows:
            done.append(f"{_counted(self.removed_rows, 'row')} removed")
        done += [f"{count} {what}" for what, count in (self.changes or {}).items() if count]
        return f"{self.outcome.value} in version {self.version} of {self.table}: {', '.join(done)}, key {self.key!r}"

    def as_repeat(self) -> Receipt:
        """The receipt of the same write, given once more."""
        return replace(self, outcome=Outcome.ALREADY_COMMITTED, attempts=0, led_by_us=None, rebased=0)

    def to_json(self) -> str:
        """The receipt as one line of JSON."""
        return json.dumps(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The receipt as plain values, ready for JSON."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        changes = None if self.changes is None else dict(self.changes)
        return {**plain, "outcome": self.outcome.value, "changes": changes}


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


class Named(Protocol):
    """What identifies one write."""

    @property
    def key(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def rows(self) -> int: ...

    @property
    def txn(self) -> tuple[str, int] | None: ...

    @property
    def changes(self) -> Mapping[str, int] | None: ...


@dataclass(frozen=True, slots=True)
class Done:
    """Where a write's rows are, and what this call did for it; ``already``: an earlier call had committed them."""

    version: int
    already: bool
    rows: int
    files: int
    attempts: int
    contended: bool = field(default=False, kw_only=True)
    removed_rows: int | None = field(default=None, kw_only=True)
    changes: Mapping[str, int] | None = field(default=None, kw_only=True)
    copied_bytes: int | None = field(default=None, kw_only=True)
    members: int | None = field(default=None, kw_only=True)
    led_by_us: bool = field(default=True, kw_only=True)
    waited_s: float = field(default=0.0, kw_only=True)
    rebased: int = field(default=0, kw_only=True)

    def receipt(self, table: str, write: Named, elapsed_s: float) -> Receipt:
        """Make the caller's receipt."""
        return Receipt(
            outcome=Outcome.ALREADY_COMMITTED if self.already else Outcome.COMMITTED,
            table=table,
            version=self.version,
            rows=self.rows,
            files=self.files,
            attempts=self.attempts,
            elapsed_s=elapsed_s,
            key=write.key,
            fingerprint=write.fingerprint,
            txn=write.txn,
            removed_rows=self.removed_rows,
            changes=self.changes,
            copied_bytes=self.copied_bytes,
            members=self.members,
            led_by_us=None if self.already else self.led_by_us,
            waited_s=self.waited_s,
            rebased=self.rebased,
        )
