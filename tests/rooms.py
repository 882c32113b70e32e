"""Counts how the rooms of safewrite import each other: rooms, floors, arrows, circles.  ``make rooms`` prints them.

A room is a child of a package, and an arrow an import of one room by another, imports for types with them.  A circle is a
set of rooms of which each leads to all others; it stands on one floor.  The floor of a room is one above the highest that
it imports.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter

import grimp


@dataclass(frozen=True)
class House:
    """The rooms of one package and the arrows between them."""

    rooms: frozenset[str]
    arrows: frozenset[tuple[str, str]]

    @property
    def circles(self) -> set[frozenset[str]]:
        """Sets of rooms that import each other, directly or by others."""
        reached = {room: self._reached(room) for room in self.rooms}
        around = {
            room: frozenset(one for one in reached[room] if room in reached[one]) for room in self.rooms
        }
        return {circle for circle in around.values() if circle}

    @property
    def floors(self) -> dict[str, int]:
        """The floor of each room, from 1."""
        of = {room: circle for circle in self.circles for room in circle}
        below: dict[frozenset[str], set[frozenset[str]]] = {}
        for room in self.rooms:
            own = of.get(room, frozenset({room}))
            others = {of.get(b, frozenset({b})) for a, b in self.arrows if a == room}
            below.setdefault(own, set()).update(others - {own})
        found: dict[frozenset[str], int] = {}
        for rooms in TopologicalSorter(below).static_order():
            found[rooms] = 1 + max((found[one] for one in below.get(rooms, ())), default=0)
        return {room: floor for rooms, floor in found.items() for room in rooms}

    def _reached(self, room: str) -> set[str]:
        found, left = set[str](), [room]
        while left:
            at = left.pop()
            new = {b for a, b in self.arrows if a == at} - found
            found |= new
            left += new
        return found

    def __str__(self) -> str:
        floors = self.floors
        return (
            f"{len(self.rooms)} rooms, {max(floors.values())} floors, {len(self.arrows)} arrows, "
            f"{len(self.circles)} circles"
        )


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("safewrite", cache_dir=None)


def house_of(package: str) -> House:
    """The house of a package's children; what the package's own ``__init__`` imports is no arrow."""
    graph, depth = _graph(), package.count(".") + 1
    inside = {name: name.split(".")[depth] for name in graph.modules if name.startswith(f"{package}.")}
    arrows = {
        (room, inside[other])
        for name, room in inside.items()
        for other in graph.find_modules_directly_imported_by(name)
        if other in inside and inside[other] != room
    }
    return House(frozenset(inside.values()), frozenset(arrows))


def circle_of_files() -> list[str]:
    """Files each of which imports the next, the last the first, imports for types with them; none where there is no circle."""
    graph = _graph()
    try:
        TopologicalSorter(
            {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
        ).prepare()
    except CycleError as error:
        found: list[str] = error.args[1][::-1]
        return found
    return []


def main() -> None:
    """Print the counts of the houses, and what each room imports."""
    for package in ("safewrite", "safewrite.cdc", "safewrite.medallion"):
        house = house_of(package)
        print(f"{package}: {house}")  # noqa: T201
        for room, floor in sorted(house.floors.items(), key=lambda one: (-one[1], one[0])):
            print(f"  {floor:2} {room}: {', '.join(sorted(b for a, b in house.arrows if a == room))}")  # noqa: T201
        for circle in house.circles:
            print(f"  circle: {', '.join(sorted(circle))}")  # noqa: T201


if __name__ == "__main__":
    main()
