"""A process that appends rows one by one with safewrite, beside Spark: ``python -m tests.spark.pandas_writer``."""

from __future__ import annotations

from collections.abc import Sequence

from tests.integration.places import Place, rows
from tests.spark.child import Child, Parent


def start(place: Place, ids: Sequence[int]) -> Child:
    """A process that is ready when it has opened the table, appends when it is told a word, and says when it is done."""
    return Child(__name__, (place, ids))


def main() -> None:
    """Open, say so, wait for a word, append."""
    parent = Parent()
    place, ids = parent.hear()
    table = place.open(lease_s=3.0)
    parent.say("ready")
    parent.hear()
    for number in ids:
        table.append(rows(number), key=f"event-{number}")
    parent.say("done")


if __name__ == "__main__":
    main()
