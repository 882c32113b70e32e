"""Looks for the namespace of a new Iceberg table, and makes one only where that cannot be a slip of the name."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from safewrite.errors import InvalidInputError
from safewrite.text.rendering import shown

if TYPE_CHECKING:
    from safewrite.iceberg.connect import Connection

_SHOWN_MAX = 5
_NEAR = 0.8
_SIMILAR = 0.6


def check(connection: Connection, catalog: Any, *, create: bool) -> bool:
    """Whether the namespace of a table that is to be made must be made first.

    Namespaces of Glue, of REST catalogs and of others belong to an account or a team, with permissions of their own: one
    is made only where ``create`` says so.  In a SQL catalog a namespace is no more than a name; there it is refused only
    if it is near one that is there.

    Raises:
        InvalidInputError: it is not there, and is not to be made.
    """
    namespace = connection.identifier[:-1]
    if not _is_missing(catalog, namespace):
        return False
    if create:
        return True
    known = _siblings(catalog, namespace)
    if namespace[-1] in known:
        return False  # a rival has made it since
    near = _near(namespace[-1], known)
    if connection.kind == "sql" and not near:
        return True
    named = ".".join(namespace)
    beside = near or get_close_matches(namespace[-1], known, _SHOWN_MAX, _SIMILAR) or known[:_SHOWN_MAX]
    there = f"There are: {', '.join(map(shown, beside))}." if beside else "It shows no others."
    raise InvalidInputError(
        f"The catalog has no namespace {named!r}, in which {connection.table_name} would be made. {there} Nothing was written. "
        "Correct the name; or, if a new namespace is meant, make it in the catalog, or give create_namespace=True."
    )


def _is_missing(catalog: Any, namespace: tuple[str, ...]) -> bool:
    """Whether a catalog says that the namespace does not exist; False where it does not say."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    try:
        catalog.load_namespace_properties(namespace)
    except NoSuchNamespaceError:
        return True
    except Exception:  # noqa: BLE001 - who may not look learns from the table's creation whether it is there
        return False
    return False


def _siblings(catalog: Any, namespace: tuple[str, ...]) -> list[str]:
    """The names that are there on its level; none where the catalog does not tell them."""
    try:
        found = catalog.list_namespaces(namespace[:-1]) if len(namespace) > 1 else catalog.list_namespaces()
        return sorted({str(one[len(namespace) - 1]) for one in found if len(one) >= len(namespace)})
    except Exception:  # noqa: BLE001 - only the text of a refusal depends on it
        return []


def _near(name: str, known: list[str]) -> list[str]:
    """Names that this one may be a slip of; those that differ in digits only are a series (``y2025``, ``y2026``)."""
    plain = _without_digits(name)
    others = [one for one in known if _without_digits(one) != plain or one.casefold() == name.casefold()]
    folded = {one.casefold(): one for one in others}
    return [folded[one] for one in get_close_matches(name.casefold(), list(folded), _SHOWN_MAX, _NEAR)]


def _without_digits(name: str) -> str:
    return "".join(letter for letter in name.casefold() if not letter.isdigit())
