"""Looks at what callers give: any object at all, which may raise whatever it likes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from safewrite.errors import InvalidInputError, SafewriteError, StorageError
from safewrite.text.rendering import said, shown
from safewrite.text.strings import is_text, plain

SchemaMode: TypeAlias = Literal["merge", "widen"]


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn each error into one of the argument, while a caller's argument is read and nothing is written yet.

    Also a decorator.  Errors that are no ``Exception`` (KeyboardInterrupt) pass through.

    Raises:
        InvalidInputError: for what the argument, or a library that reads it, raised.
        StorageError: there was not enough memory for it.
    """
    try:
        yield
    except SafewriteError:
        raise
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{what} cannot be read: a name or a text in it is no UTF-8 ({said(error)}). Nothing was written. Decode the bytes by the "
            "encoding that they have (such as latin-1), or keep them in a binary column."
        ) from error
    except RecursionError as error:
        raise InvalidInputError(
            f"{what} cannot be read: it is nested too deeply, or holds itself. Nothing was written. Make it flatter."
        ) from error
    except MemoryError as error:
        raise StorageError(
            f"There was not enough memory to read {what}. Nothing was written, and nothing is wrong with it. Give fewer rows at once, "
            "or give the process more memory."
        ) from error
    except Exception as error:
        raise InvalidInputError(
            f"{what} cannot be read: {type(error).__name__}: {said(error)}. Nothing was written. Correct it; if you find "
            "nothing wrong with it, please report this."
        ) from error


def spark_catalog(value: object) -> str | None:
    """What a Spark session calls the catalog of a table; None where the session is to be asked.

    Raises:
        InvalidInputError: it is no name.
    """
    if value is None or (is_text(value) and plain(value)):
        return None if value is None else plain(value)
    raise InvalidInputError(
        f"spark_catalog= is what the Spark session calls the table's catalog, a non-empty text, not {shown(value)}. Nothing "
        "was written. Leave it out where the session has one catalog of the kind."
    )


def schema_mode(value: Any, *modes: SchemaMode) -> SchemaMode | None:
    """``schema_mode=`` as it was given: None, ``"merge"``, or one of more modes.

    Raises:
        InvalidInputError: it is none of them.
    """
    known: tuple[SchemaMode, ...] = ("merge", *modes)
    found = next((mode for mode in known if is_text(value) and plain(value) == mode), None)
    if value is not None and found is None:
        raise InvalidInputError(
            f"schema_mode is None or {' or '.join(map(repr, known))}, not {shown(value)}. Nothing was written."
        )
    return found


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of some words.  Raises InvalidInputError for anything else."""
    if value in choices and isinstance(value, str):
        return value
    raise InvalidInputError(
        f"{name}= is {' or '.join(map(repr, choices))}, not {shown(value)}. Nothing was written."
    )
