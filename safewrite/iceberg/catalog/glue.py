"""Guards Glue's client: no update without the version id that Glue compares (C4), and none drops what others entered."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from safewrite.errors import Kind, UnsafeConfigError

_UPDATE = "provide-client-params.glue.UpdateTable"
_ASK = "provide-client-params.glue.GetTable"
_READ = "after-call.glue.GetTable"
_FIELD_ID = "iceberg.field.id"
_DESCRIBED = ("Description",)
_ENTERED = (*_DESCRIBED, "Owner", "Retention", "LastAccessTime", "LastAnalyzedTime")
"""What no commit changes, and an update that leaves it out clears."""
_DERIVED = ("Columns", "Location", "SchemaReference")
"""What the table's metadata says of its place and columns; a reference to a schema cannot stand next to columns."""


def guard(catalog: Any) -> None:
    """Let a Glue catalog's client refuse updates that would set without comparing; other catalogs pass.

    One argument that PyIceberg hands over is all that makes a commit on Glue a compare-and-set, so it is
    checked on its way out.  Glue replaces the whole entry of a table, and PyIceberg makes a new one of the
    metadata: what people and tools entered in Glue is put back into it.  May be called again for the same catalog.
    """
    glue = getattr(catalog, "glue", None)
    events = getattr(getattr(glue, "meta", None), "events", None)
    if events is not None:
        entries = _Entries(glue)
        events.register(_ASK, entries.ask, unique_id="safewrite-entry-asked")
        events.register(_READ, entries.remember, unique_id="safewrite-entry-read")
        events.register(_UPDATE, entries.complete, unique_id="safewrite-version-id")


class _Entries(threading.local):
    """The entry that each thread read last: a commit reads it, and updates that version of it."""

    def __init__(self, glue: Any) -> None:
        self.glue = glue
        self.last: Mapping[str, Any] = {}
        self.asked: tuple[str, str] | None = None
        """Its names as they were asked for: Glue follows links, and says the names of their targets."""

    def ask(self, params: Mapping[str, Any], **_: Any) -> None:
        self.asked = _names(params, params)

    def remember(self, parsed: Mapping[str, Any], **_: Any) -> None:
        self.last = parsed.get("Table") or {}

    def complete(self, params: dict[str, Any], **_: Any) -> None:
        if not params.get("VersionId"):
            raise UnsafeConfigError(
                "Glue's UpdateTable was called without VersionId: it would overwrite other writers' commits without "
                "an error. The request was not sent. Use a version of PyIceberg that safewrite names.",
                kind=Kind.DISHONEST_STORE,
            )
        sent = params.get("TableInput") or {}
        if not _is_iceberg(sent):
            return
        if not self._is_replaced(params):
            self.glue.get_table(
                **{key: params[key] for key in ("CatalogId", "DatabaseName") if key in params},
                Name=sent["Name"],
            )
        # An update of another version is refused by Glue, whatever it says.
        if self._is_replaced(params):
            params["TableInput"] = completed(sent, self.last)

    def _is_replaced(self, params: Mapping[str, Any]) -> bool:
        """Whether the entry that was read last is the one, and the version, that a request replaces."""
        asked = _names(params, params["TableInput"])
        return asked == self.asked and params["VersionId"] == self.last.get("VersionId")


def _names(request: Mapping[str, Any], table: Mapping[str, Any]) -> tuple[str, str]:
    """Database and table as Glue knows them, in lower case."""
    return str(request.get("DatabaseName")).lower(), str(table.get("Name")).lower()


def _is_iceberg(sent: Mapping[str, Any]) -> bool:
    return str((sent.get("Parameters") or {}).get("table_type", "")).lower() == "iceberg"


def completed(sent: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """What is sent in place of an entry, with what others entered there and the table's metadata does not say.

    A column's comment is that of the metadata where that has one, else the entry's, as Iceberg's Java library keeps it.
    Of a table that another service holds (S3 Tables) only texts are sent back.
    """
    whole = not entry.get("FederatedTable")
    storage, known = sent.get("StorageDescriptor") or {}, entry.get("StorageDescriptor") or {}
    columns = _Columns(known.get("Columns") or ())
    kept = {name: value for name, value in known.items() if name not in _DERIVED and value} if whole else {}
    described = _ENTERED if whole else _DESCRIBED
    return {
        **{name: entry[name] for name in described if entry.get(name)},
        **sent,
        "StorageDescriptor": {
            **kept,
            **storage,
            "Columns": [columns.completed(one, whole=whole) for one in storage.get("Columns") or ()],
        },
    }


class _Columns:
    """The columns of an entry, found by name, by field id after a rename, or by the name in lower case."""

    def __init__(self, columns: Iterable[Mapping[str, Any]]) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}
        self._by_id: dict[str, Mapping[str, Any]] = {}
        self._folded: dict[str, Mapping[str, Any]] = {}
        for one in columns:  # current columns stand first
            self._named.setdefault(one["Name"], one)
            self._folded.setdefault(one["Name"].lower(), one)
            self._by_id.setdefault(_id_of(one), one)
        self._by_id.pop("", None)

    def completed(self, sent: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
        """A column that is sent, with the comment and the parameters that its entry has."""
        name = sent["Name"]
        entry = self._named.get(name) or self._by_id.get(_id_of(sent)) or self._folded.get(name.lower()) or {}
        found = dict(sent)
        if entry.get("Comment") and not sent.get("Comment"):
            found["Comment"] = entry["Comment"]
        if whole and entry.get("Parameters"):
            found["Parameters"] = {**entry["Parameters"], **(sent.get("Parameters") or {})}
        return found


def _id_of(column: Mapping[str, Any]) -> str:
    return str((column.get("Parameters") or {}).get(_FIELD_ID, ""))
