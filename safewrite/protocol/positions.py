"""Names how far sources were taken into a table: a commit moves a position only from where its caller saw it.

A position is a whole number under a name, such as the next offset of a topic's partition.  It is moved in the commit of
the rows it stands for, so it is neither ahead of them nor behind.  Whoever comes second with the same start, a zombie or a
second job, finds the position moved and commits nothing (E7); this needs no clock and no owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from safewrite.errors import ConflictError, InvalidInputError, Kind
from safewrite.protocol import keys
from safewrite.text.rendering import shown
from safewrite.text.strings import is_storable, is_text, plain


class Move(NamedTuple):
    """From where to where; ``start`` None: the table has no position of that name."""

    start: int | None
    end: int


Moves = Mapping[str, Move]
Known = Mapping[str, int | None]
"""Positions by name; None: there is one, and a roll-back took away what tells it."""


def check(given: Any) -> dict[str, Move]:
    """``positions=`` as it was given; {} for None.

    Raises:
        InvalidInputError: it is not a mapping of names to ``(from, to)``.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _unusable(given)
    return {_name(name): _move(name, one) for name, one in given.items()}


def _name(name: object) -> str:
    if (
        not is_text(name)
        or not is_storable(name)
        or not name.strip()
        or len(name.encode()) > keys.KEY_LENGTH_MAX
    ):
        raise InvalidInputError(
            f"positions= is a dict of names to (from, to), and {shown(name)} is not a name: a text of 1 to {keys.KEY_LENGTH_MAX} bytes that is "
            "not blank. Nothing was written."
        )
    return plain(name)


def _move(name: object, given: Any) -> Move:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise _unusable({name: given})
    start, end = (None if one is None else keys.whole_number(one) for one in given)
    if end is None or not 0 <= end < 2**63 or (start is not None and not 0 <= start < 2**63):
        raise _unusable({name: given})
    return Move(start, end)


def _unusable(given: object) -> InvalidInputError:
    return InvalidInputError(
        f"positions= is a dict of names (texts of at most {keys.KEY_LENGTH_MAX} bytes) to (from, to), whole numbers from 0 to "
        f"2^63 - 1, or None as from where the table has no position yet, not {shown(given)}. Nothing was written."
    )


def must_stand(known: Known, moves: Moves, key: str | None = None) -> None:
    """Make sure that the table's positions are those that a commit is to move.

    Raises:
        ConflictError: kind POSITION_MOVED.
    """
    for name, move in moves.items():
        found = known.get(name)
        if found is None and name in known:
            raise lost(name, key)
        if found != move.start:
            raise moved(name, move, "none" if found is None else str(found), key)


def stand(known: Known, moves: Moves) -> bool:
    """Whether the table's positions are those that a commit is to move: what :func:`must_stand` makes sure of."""
    return all(
        known.get(name) == move.start and (name in known) == (move.start is not None)
        for name, move in moves.items()
    )


def moved(name: str, move: Move, found: str, key: str | None = None) -> ConflictError:
    """The error of a commit that came second."""
    return ConflictError(
        f"The table's position of {shown(name)} is {found}, and these rows follow {move.start}: another writer took rows of "
        "that source into the table, or the table was made anew or rolled back. Nothing was committed. Read "
        "table.positions() and go on from there; if two jobs run, stop one of them.",
        kind=Kind.POSITION_MOVED,
        key=key,
    )


def lost(name: str, key: str | None = None) -> ConflictError:
    """The error where a roll-back took away what tells a position."""
    return ConflictError(
        f"The table was rolled back behind the commit that moved the position of {shown(name)}, and the snapshots that would "
        "tell where it was before were expired. Nothing was committed. Find out which rows of that source the table holds, "
        f"remove its property 'safewrite.position.{name}', and go on from None.",
        kind=Kind.POSITION_MOVED,
        key=key,
    )
