"""Loads catalogs as PyIceberg does, by classes of our own where these are safer or ask for less."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from pyiceberg.catalog import TYPE, Catalog, CatalogType, infer_catalog_type, load_catalog
from pyiceberg.utils.config import Config, merge_config

_taken: WeakKeyDictionary[Catalog, Catalog] = WeakKeyDictionary()
"""One of ours for all tables of an object: its clients are not all made for threads."""


def taken(catalog: Catalog) -> Catalog:
    """A catalog object of the user's as one of ours, which writes metadata files as ours do; any but PyIceberg's own is used as it is."""
    kind = {"SqlCatalog": "sql", "GlueCatalog": "glue"}.get(type(catalog).__name__)
    own = None if kind is None else _own(kind)
    if own is None or type(catalog) is not own.__bases__[-1]:
        return catalog
    return _taken.setdefault(catalog, own.like(catalog))


def load(name: str, **properties: Any) -> Catalog:
    """As PyIceberg's ``load_catalog``; REST, Glue and SQL catalogs are ours.  Raises as that does."""
    configured: Any = Config().get_catalog_config(name) or {}
    merged: Any = merge_config(configured, properties)
    kind = merged.get(TYPE) or (infer_catalog_type(name, merged) if "uri" in merged else None)
    own = (
        None
        if kind is None or "py-catalog-impl" in merged
        else _own(str(getattr(kind, "value", kind)).lower())
    )
    return taken(load_catalog(name, **properties)) if own is None else own(name, **merged)


def _own(kind: str) -> Any:
    """Our class of a kind of catalogs; None where PyIceberg has one alone, or says itself what is not installed."""
    try:
        match CatalogType(kind):
            case CatalogType.REST:
                from safewrite.iceberg.catalog.rest import RestCatalog

                return RestCatalog
            case CatalogType.GLUE:
                from safewrite.iceberg.catalog.glue_catalog import GlueCatalog

                return GlueCatalog
            case CatalogType.SQL:
                from safewrite.iceberg.catalog.sql_catalog import SqlCatalog

                return SqlCatalog
    except ImportError:
        pass
    return None
