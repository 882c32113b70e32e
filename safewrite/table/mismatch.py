"""Explains why a key counts as used: which columns differ from its first write, and whether attempts make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from safewrite.errors import ReplayMismatchError, SafewriteError

if TYPE_CHECKING:
    from safewrite.frames.prepare import Prepared

ErrorT = TypeVar("ErrorT", bound=SafewriteError)

VERSIONS_MAX = 16
"""How many versions are read to explain the mismatches of one call; the errors of others say less."""
_NAMES_MAX = 8
_STAND = "The earlier rows stand, none of these were written."
_IN_TABLE = "If this is the same event, its rows are in the table: do not write them again under another key."


class Explainer:
    """Explains the mismatches of one call by what the history recorded of each key's first write.

    The errors are decided already, by fingerprints: whatever goes wrong here, the error is raised as it was.
    """

    def __init__(self, recorded: Callable[[int], Sequence[Mapping[str, Any]]]) -> None:
        self._recorded = recorded
        self._known: dict[int, dict[str, Mapping[str, Any]]] = {}

    def explained(
        self, error: ErrorT, volatile: Sequence[str], count: Callable[[], Prepared] | None
    ) -> ErrorT:
        """The error with a better text, where the history tells more.

        ``count`` gives the rows of this call; None for a delete, and for Spark's, whose columns have no digests.
        """
        if not isinstance(error, ReplayMismatchError) or error.version is None or error.key is None:
            return error
        try:
            entry = self._entry(error.version, error.key)
            rows = count() if entry and count else None
            if entry:
                _explain(error, entry, rows, volatile)
        except Exception as other:  # noqa: BLE001 - a store that is down, for one: the error stands as it is
            error.add_note(f"What differs could not be looked up: {type(other).__name__}.")
        return error

    def _entry(self, version: int, key: str) -> Mapping[str, Any] | None:
        if version not in self._known:
            if len(self._known) >= VERSIONS_MAX:
                return None
            self._known[version] = {}
            self._known[version] = {str(one["key"]): one for one in self._recorded(version)}
        return self._known[version].get(key)


def in_one_call(error: ReplayMismatchError, first: Prepared, again: Prepared) -> ReplayMismatchError:
    """The error of a key that comes twice in a call, with the columns that differ."""
    what = _what(first.column_digests, first.rows, again)
    if what is not None:
        error.columns = _differing(first.column_digests, again) if first.rows == again.rows else ()
        made = sorted(_made(error.columns, again)) if error.columns else []
        advice = f"If they are one event, pass volatile={made}; else give" if made else "Give"
        _say(
            error,
            f"Key {error.key!r} comes twice in this call, with other rows: {what} The first of them has an answer of its own, "
            f"these rows were not written. {advice} each event a key of its own.",
        )
    return error


def _explain(
    error: ReplayMismatchError, entry: Mapping[str, Any], rows: Prepared | None, volatile: Sequence[str]
) -> None:
    kind, count, *digest = str(entry["fingerprint"]).split(":")
    if kind != ("spark1" if rows is None else "v1"):
        return  # of another engine, or of a stream's offsets: nothing more can be told
    first = list(entry.get("volatile") or ())
    if first != list(volatile):
        _explain_volatile(error, entry, rows, volatile)
    elif rows is not None and digest[:1] != [rows.fingerprint.digest]:  # else where= differs
        what = _what(str(entry.get("columns") or ""), int(count), rows)
        error.columns = _differing(str(entry.get("columns") or ""), rows) if int(count) == rows.rows else ()
        if what is not None:
            head = f"Key {error.key!r} was committed in version {error.version} with other rows: {what}"
            _say(error, f"{head} {_STAND} {_advice(error, rows)}")


def _what(first: str, count: int, rows: Prepared) -> str | None:
    """How the rows differ; None where nobody knows."""
    if count != rows.rows:
        return f"{count} then, {rows.rows} in this call."
    if not first or not rows.column_digests:
        return None
    columns = _differing(first, rows)
    if columns:
        return _sentence(columns, rows)
    return _lacking(first, rows) or "each column has the same values, in other rows."


def _explain_volatile(
    error: ReplayMismatchError, entry: Mapping[str, Any], rows: Prepared | None, volatile: Sequence[str]
) -> None:
    first = list(entry.get("volatile") or ())
    where = f"Key {error.key!r} was committed in version {error.version}"
    if first:
        now = f"volatile={list(volatile)}" if volatile else "no volatile="
        _say(
            error,
            f"{where} with volatile={first}, and this call has {now}: the two cannot be compared. {_STAND} Repeat the "
            f"write with volatile={first}; new data need a key of their own.",
        )
        return
    _say(
        error,
        f"{where} without volatile=, so it cannot be shown that this is its repeat: {_others(error, entry, rows)}{_STAND} "
        f"{_IN_TABLE} volatile= must be given from a key's first write on; new data need a key of their own.",
    )


def _others(error: ReplayMismatchError, entry: Mapping[str, Any], rows: Prepared | None) -> str:
    """What can be told of the columns that are not volatile."""
    what = None if rows is None else _what(str(entry.get("columns") or ""), _rows(entry), rows)
    if what is None or rows is None:
        return "only the whole rows were recorded. "
    if _rows(entry) == rows.rows:
        error.columns = _differing(str(entry["columns"]), rows)
        if not error.columns:
            return "the other columns seem the same, by short digests that do not tell which values stood in one row. "
    return f"{what} "


def _rows(entry: Mapping[str, Any]) -> int:
    return int(str(entry["fingerprint"]).split(":")[1])


def _differing(first: str, rows: Prepared) -> tuple[str, ...]:
    from safewrite.frames.column_digests import differing

    if not first or not rows.column_digests:
        return ()
    names = [name for name in rows.schema.names if name not in rows.volatile]
    return tuple(differing(first, rows.column_digests, names))


def _lacking(first: str, rows: Prepared) -> str | None:
    from safewrite.frames.column_digests import lacking

    count = lacking(first, rows.schema.names)
    return f"they had {count} more column{'s' * (count > 1)}." if count else None


def _sentence(columns: Sequence[str], rows: Prepared) -> str:
    """``column 'loaded_at' differs: ...``"""
    shown = ", ".join(map(repr, columns[:_NAMES_MAX]))
    rest = f" and {len(columns) - _NAMES_MAX} more" if len(columns) > _NAMES_MAX else ""
    text = f"column {shown} differs" if len(columns) == 1 else f"columns {shown}{rest} differ"
    made = _made(columns, rows)
    if not made:
        return f"{text}."
    them = (
        "it is" if len(columns) == 1 else ", ".join(map(repr, made)) + (" is" if len(made) == 1 else " are")
    )
    return f"{text}: {them} probably made in each attempt ({', '.join(dict.fromkeys(made.values()))})."


def _made(columns: Sequence[str], rows: Prepared) -> dict[str, str]:
    """Those of the columns that attempts seem to make, and how they look."""
    from safewrite.frames.volatile_hints import looks_made

    found = {}
    for name in columns[:_NAMES_MAX]:
        piece = next(rows.tables([name]), None)
        look = None if piece is None else looks_made(piece.column(name))
        if look is not None:
            found[name] = look
    return found


def _advice(error: ReplayMismatchError, rows: Prepared) -> str:
    made = _made(error.columns, rows)
    if made and len(made) == len(error.columns):
        return (
            f"{_IN_TABLE} For events to come, pass volatile={sorted(made)} from a key's first write on, or take the value "
            "from the event."
        )
    return (
        "If these are new data, give them a key of their own; if they are the same event, take its values from the event, "
        "and name what is made in each attempt (a load time, a uuid) in volatile= from a key's first write on. A stream whose "
        "checkpoint was deleted needs a new app id."
    )


def _say(error: ReplayMismatchError, text: str) -> None:
    error.message, error.args = text, (text,)
