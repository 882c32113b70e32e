"""A pytest plugin that puts a SafeCatalog around every catalog that a test of PyIceberg makes.

Fixtures that return a catalog return a decorated one, and the catalog classes and ``load_catalog`` in a test
module's own namespace make decorated ones.  The tests themselves are not changed.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from types import ModuleType
from typing import Any

import pytest
from pyiceberg import catalog as catalogs
from pyiceberg.catalog import Catalog

from safewrite.iceberg import SafeCatalog


def decorated(made: Any) -> Any:
    """The catalog in a decorator; anything else as it is."""
    return SafeCatalog(made) if isinstance(made, Catalog) and not isinstance(made, SafeCatalog) else made


class _Making(ABCMeta):
    """Makes subclasses of a catalog class whose instances are decorated ones of that class."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(getattr(instance, "inner", instance), cls.__mro__[1])


def making(found: type) -> Any:
    """Stands for a catalog class in a test module."""

    def make(cls: type, *args: Any, **kwargs: Any) -> Any:
        return decorated(found(*args, **kwargs))

    return _Making(found.__name__, (found,), {"__new__": make, "__module__": found.__module__})


def decorate(module: ModuleType) -> None:
    """Let all catalogs that a test module makes be decorated ones."""
    for name, value in list(vars(module).items()):
        if inspect.isclass(value) and issubclass(value, Catalog) and not inspect.isabstract(value):
            setattr(module, name, making(value))
        elif value is catalogs.load_catalog:
            setattr(module, name, lambda *args, **kwargs: decorated(catalogs.load_catalog(*args, **kwargs)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        decorate(module)


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Any:
    outcome = yield
    result = decorated(outcome.get_result())
    fixturedef.cached_result = (result, *fixturedef.cached_result[1:])
    outcome.force_result(result)
