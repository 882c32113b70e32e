"""Says why safewrite writes no values of some types that tables and engines have; one place for Delta, Iceberg and Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from safewrite.errors import InvalidInputError, SafewriteError, UnsupportedTableError, WouldAlterError

_NO_ARROW = "Arrow has no type for it, so its values could not be compared with those that are written"
_WHY = {"variant": _NO_ARROW, "geometry": _NO_ARROW, "geography": _NO_ARROW}
ADVICE = "Write this table with Spark, or leave the column out of it."


def is_opaque(kind: str) -> bool:
    """Whether a type is one whose values no frame holds, although engines hand over the parts of them."""
    return kind in _WHY


def reason(kind: str) -> str:
    """Why a type is refused; ``geometry(srid:3857)`` is one of its kind."""
    name = kind.partition("(")[0]
    return (
        f"safewrite cannot write {name} values: {_WHY[name]}"
        if name in _WHY
        else f"safewrite does not know the type {kind}"
    )


def unsupported(column: str, kind: str, table: str) -> UnsupportedTableError:
    """The refusal of a column of a Delta or Iceberg table."""
    return UnsupportedTableError(
        f"Column {column!r} has the {table} type {kind!r}: {reason(kind)}. Nothing was written. {ADVICE}"
    )


@contextmanager
def saying_why(unread: Callable[[], Mapping[str, str]]) -> Iterator[None]:
    """Let the refusal of a column say why no frame, key or condition may name it, where the table has it and it cannot be read."""
    try:
        yield
    except (InvalidInputError, WouldAlterError) as error:
        with suppress(SafewriteError):
            whys = (
                why
                for name, why in unread().items()
                if repr(name) in error.message and why not in error.message
            )
            error.message = " ".join([error.message, *(f"{why}." for why in whys)])
            error.args = (error.message, *error.args[1:])
        raise


def check_all_read(unread: Mapping[str, str], names: Sequence[str]) -> None:
    """Refuse to read all columns of a table where some cannot be read; ``names`` are the others, ``unread`` has the reasons.

    Raises:
        UnsupportedTableError: it names the first of them.
    """
    for name, why in unread.items():
        raise UnsupportedTableError(
            f"{why}. Nothing was read, for column {name!r} would be missing. Name the columns to be read: columns={[*names[:3]]} for "
            "rows(), changes_since(), read() and tables(); row_count() and history() go on."
        )


def check_brought(unread: Mapping[str, str], names: Callable[[], Iterable[str]]) -> None:
    """Refuse data with a column of the table whose values safewrite does not write; rows without it have NULL there.

    ``unread`` has the reasons, by column.

    Raises:
        InvalidInputError: names the first.
    """
    for name in names() if unread else ():
        if name in unread:
            raise InvalidInputError(
                f"{unread[name]}. Nothing was written. Leave the column out of the data, which makes it NULL in these rows; or "
                "write them with an engine that has the type."
            )
