"""Remembers which keys' intents name a group of one call, until it is known what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from safewrite.protocol.effects import Ok, Outcome
from safewrite.protocol.values import LedgerRecord
from safewrite.stores.abc import LedgerPart

GROUPS_MAX = 256
"""How many groups are remembered whose results are not known yet."""


class Groups:
    """The groups of a ledger that have no result yet.

    The result of a group is put once and never changed: a request whose answer was lost may come late.  It is for the
    intents that this very call created; what else is to be told stands by itself.  Threads share this without a lock,
    which a forked child could inherit held: each step on a dict is one of Python's own.
    """

    def __init__(self) -> None:
        self._keys: dict[str, set[str]] = {}
        self._told: dict[str, frozenset[str]] = {}
        self._bodies: dict[str, bytes] = {}

    def intended(self, group: str, answers: Mapping[str, Outcome]) -> None:
        """Note what the intents of a group were answered, by key."""
        for keys in list(self._keys.values()):
            keys.difference_update(answers)
        # Of the others, the intent that is there may name another group, or none.
        self._keys[group] = {key for key, answer in answers.items() if isinstance(answer, Ok)}
        for name in list(self._keys)[:-GROUPS_MAX]:
            self.forget(name)

    def parts(self, records: Sequence[LedgerRecord]) -> list[LedgerPart]:
        """The records in parts: those that the result of a group tells, and the others one by one."""
        left = {record.key: record for record in records}
        found: list[LedgerPart] = []
        for name, keys in list(self._keys.items()):
            own = frozenset(key for key in keys & left.keys() if left[key].version is not None)
            # What was put there once, or is about to be, may lack others.
            if len(own) > 1 and self._told.setdefault(name, own) == own:
                found.append(LedgerPart(tuple(left.pop(key) for key in sorted(own)), name))
        for keys in list(self._keys.values()):
            keys.difference_update(left)
        return [*found, *(LedgerPart((record,)) for record in left.values())]

    def body(self, group: str, fresh: bytes) -> bytes:
        """The result of a group: ``fresh``, or what was put before."""
        return self._bodies.setdefault(group, fresh)

    def forget(self, group: str) -> None:
        """The result of a group is there, or will never be."""
        for known in (self._keys, self._told, self._bodies):
            known.pop(group, None)
