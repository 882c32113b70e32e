"""No room and no file leads back to itself.  ``make rooms`` prints how many rooms, floors and arrows there are."""

from __future__ import annotations

import pytest

from tests.rooms import House, circle_of_files, house_of


@pytest.mark.parametrize("package", ["safewrite", "safewrite.cdc", "safewrite.medallion"])
def test_a_house_has_no_circle(package: str) -> None:
    assert not [sorted(circle) for circle in house_of(package).circles]


def test_no_file_leads_back_to_itself() -> None:
    """A Protocol in an ``abc.py``, or beside who asks for it, ends a circle of types."""
    assert circle_of_files() == []


def test_floors_and_circles_are_counted() -> None:
    tower = House(frozenset("abc"), frozenset({("a", "b"), ("b", "c"), ("a", "c")}))
    assert (tower.floors, tower.circles) == ({"a": 3, "b": 2, "c": 1}, set())
    turned = House(frozenset("abcd"), frozenset({("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")}))
    assert turned.circles == {frozenset("bc")}
    assert turned.floors == {"a": 3, "b": 2, "c": 2, "d": 1}
