"""The house keeps its measure: few rooms, few arrows between them, no circles.  ``make rooms`` prints the counts."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.rooms import House, house_of


class Measure(NamedTuple):
    """The most that a house may have."""

    rooms: int
    floors: int
    arrows: int


MEASURES = {
    "safewrite": Measure(rooms=26, floors=12, arrows=128),
    "safewrite.cdc": Measure(rooms=9, floors=9, arrows=26),
    "safewrite.medallion": Measure(rooms=10, floors=8, arrows=30),
}


@pytest.mark.parametrize("package", MEASURES)
def test_a_house_has_few_rooms_few_arrows_and_no_circle(package: str) -> None:
    house, most = house_of(package), MEASURES[package]
    found = Measure(len(house.rooms), max(house.floors.values()), len(house.arrows))
    assert not house.circles, [sorted(circle) for circle in house.circles]
    assert all(one <= limit for one, limit in zip(found, most, strict=True)), f"{found} > {most}"


def test_floors_and_circles_are_counted() -> None:
    tower = House(frozenset("abc"), frozenset({("a", "b"), ("b", "c"), ("a", "c")}))
    assert (tower.floors, tower.circles) == ({"a": 3, "b": 2, "c": 1}, set())
    turned = House(frozenset("abcd"), frozenset({("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")}))
    assert turned.circles == {frozenset("bc")}
    assert turned.floors == {"a": 3, "b": 2, "c": 2, "d": 1}
