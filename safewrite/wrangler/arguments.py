"""Checks the arguments that both calls have, before any request is made."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import safewrite as sw

if TYPE_CHECKING:
    import boto3


class Name(TypedDict, total=False):
    """How a write is named, so that a repeat is recognised: by one of the two, as for ``Table.append``."""

    key: str
    txn: tuple[str, int]


def check_name(call: str, name: Mapping[str, Any]) -> None:
    """Raise TypeError for an argument that the call does not have, as Python does."""
    for given in name:
        if given not in Name.__annotations__:
            raise TypeError(f"{call}() got an unexpected keyword argument {given!r}")


def session(given: boto3.Session | None, options: Mapping[str, Any] | None = None) -> boto3.Session | None:
    """The session that is given, else boto3's default one where it is set, as in awswrangler; None where neither is.

    A profile that the options name goes before the default session: it says who signs.
    """
    if given is not None or any(str(name).upper() == "AWS_PROFILE" for name in options or ()):
        return given
    found: boto3.Session | None = getattr(sys.modules.get("boto3"), "DEFAULT_SESSION", None)
    return found


def one_of(name: str, value: Any, known: tuple[Any, ...]) -> Any:
    """The value; raises InvalidInputError unless it is one of those known."""
    if not any(value is one or (type(value) is type(one) and value == one) for one in known):
        raise sw.InvalidInputError(
            f"{name}= is one of {', '.join(map(repr, known))}, not {value!r}. Nothing was written. Correct it."
        )
    return value


def names(name: str, value: Any) -> tuple[str, ...]:
    """A list of column names; None is an empty one."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        example = [value if isinstance(value, str) else "day"]
        raise sw.InvalidInputError(
            f"{name}= is a list of texts, not {value!r}. Nothing was written. Write {name}={example!r}."
        )
    return tuple(value)


def mapping(name: str, value: Any) -> dict[Any, Any]:
    """A dict; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise sw.InvalidInputError(
            f"{name}= is a dict, not {value!r}. Nothing was written. Correct it, or leave it out."
        )
    return dict(value)
