"""Members that wait for another writer's commit: which fit, which never will, and which wait on."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.delta.log.actions import Commit
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write import waiting
from safewrite.delta.write.abc import Write
from safewrite.protocol import member_queue
from safewrite.protocol.member_queue import Offer

OWN = Write("own", "1:0", 1, 1, offer="own-attempt")
NOTHING: dict[str, Any] = {"writes": []}


@dataclass(frozen=True)
class Table:
    """A snapshot at version 3, and what its commits since version 0 carried."""

    state: Snapshot
    known: dict[int, Any]

    def offer(self, key: str, *, base: int = 0, **changed: Any) -> Offer:
        """A member of one file with one row."""
        write = replace(Write(key, "1:0", 1, 1, offer=f"{key}-attempt"), **changed)
        adds = [
            {"add": {"path": f"{key}-{n}.parquet", "stats": '{"numRecords":1}'}} for n in range(write.files)
        ]
        return Offer(f"_safewrite/queue/{key}", base, waiting.encoded(write, adds, self.state, base))

    def read(self, offer: Offer) -> waiting.WaitingWrite | None:
        return waiting.decoded(offer, self.state, Write)

    def fitting(self, *offers: Offer, own: Write = OWN) -> tuple[list[str], set[str]]:
        """Keys of the members that are taken, and of those that are refused."""
        known = [one for one in offers if member_queue.is_known(one.body)]
        at = {"version": self.state.version, "txns": self.state.txns, "known": self.known}
        taken, refused = waiting.fitting(own, known, self.read, **at)
        return [one.write.key for one in taken], {path.removeprefix("_safewrite/queue/") for path in refused}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    opened = sw.open(str(tmp_path / "t"), create=True)
    for number in range(4):
        opened.append([{"id": number}], txn=("app", number))
    state = opened._format._state  # type: ignore[attr-defined]
    return Table(state, dict.fromkeys(range(1, 4), NOTHING))


def test_a_member_comes_back_as_it_was_written(table: Table) -> None:
    write = Write(
        "k", "1:0", 2, 2, txn=("other", 5), volatile=("at",), columns="digests", offer="try", fingerprint_int63=7
    )  # fmt: skip
    offer = table.offer(
        "k", **{name: getattr(write, name) for name in ("rows", "files", "txn", "volatile", "columns")}
    )
    taken = table.read(offer)
    assert taken is not None
    assert replace(taken.write, offer="try", fingerprint_int63=7) == write
    assert [add["add"]["path"] for add in taken.adds] == ["k-0.parquet", "k-1.parquet"]


def test_those_that_a_commit_since_their_base_carries_are_refused(table: Table) -> None:
    """D2: whichever of the commits it is."""
    for version in (1, 2, 3):
        there = replace(table, known=table.known | {version: {"writes": [{"key": "there"}]}})
        assert there.fitting(there.offer("there"), there.offer("new")) == (["new"], {"there"})
        assert there.fitting(there.offer("there", base=version)) == (["there"], set())


def test_none_from_before_a_change_of_the_table_is_carried(table: Table) -> None:
    """Its owner may have ended with that conflict, even where the table is as before by now."""
    changed = replace(
        table, known=table.known | {2: waiting.keys_in(Commit(2, ({"metaData": {"id": "x"}},)))}
    )
    offers = [changed.offer(f"from-{base}", base=base) for base in range(4)]
    assert changed.fitting(*offers) == (["from-2", "from-3"], {"from-0", "from-1"})


def test_a_commit_that_is_not_known_stands_for_any_key(table: Table) -> None:
    unread = replace(table, known={1: NOTHING, 3: NOTHING})
    assert unread.fitting(unread.offer("a", base=1), unread.offer("b", base=2)) == (["b"], {"a"})


def test_members_of_another_table_or_another_schema_are_refused(table: Table) -> None:
    for name in ("tableId", "table", "base"):
        offer = table.offer("k")
        body = json.dumps(json.loads(offer.body) | {name: "other"}).encode()
        assert table.fitting(replace(offer, body=body)) == ([], {"k"})


def test_a_member_whose_files_are_not_its_rows_is_refused(table: Table) -> None:
    """Never torn, never altered: an ``add`` too few, one too many, or one that does not say how many rows it has."""
    assert table.fitting(table.offer("k", rows=2)) == ([], {"k"})
    for edit in ([], [{"add": {"path": "x"}}], [{"remove": {"path": "x"}}], None):
        offer = table.offer("k")
        body = json.dumps(json.loads(offer.body) | {"actions": edit}).encode()
        assert table.fitting(replace(offer, body=body)) == ([], {"k"})


@pytest.mark.parametrize("path", ["../x", "%2E%2E/x", "s3://other/x", "/x", "file:/x", 7, None])
def test_a_member_whose_files_lie_outside_of_the_table_is_refused(table: Table, path: Any) -> None:
    """Whoever may write there could else make a leader add rows that its own rights do not reach."""
    offer = table.offer("k")
    body = json.dumps(
        json.loads(offer.body) | {"actions": [{"add": {"path": path, "stats": '{"numRecords":1}'}}]}
    )
    assert table.fitting(replace(offer, body=body.encode())) == ([], {"k"})


def test_what_a_later_release_wrote_is_left_to_others(table: Table) -> None:
    offer = table.offer("k")
    body = json.dumps(json.loads(offer.body) | {"form": 2}).encode()
    assert table.fitting(replace(offer, body=body)) == ([], set())


def test_one_key_is_carried_once(table: Table) -> None:
    twice = replace(table.offer("k"), path="_safewrite/queue/again")
    assert table.fitting(table.offer("k"), twice, table.offer("own")) == (["k"], set())


def test_batches_of_an_app_come_one_a_commit_and_in_their_order(table: Table) -> None:
    """A table keeps one number an app, so of two in one version the lower would count as written."""
    five, four, three = (table.offer(f"app/{n}", txn=("app", n)) for n in (5, 4, 3))
    assert table.fitting(five, three, four) == (["app/4"], {"app/3"})
    assert table.fitting(five, own=replace(OWN, txn=("app", 4))) == ([], set())


def test_a_member_is_read_once_for_a_layout_of_the_table(table: Table) -> None:
    """A leader that loses is offered the same members again, and may have a thousand of them."""
    kept: dict[str, tuple[str, Any]] = {}
    asked: list[str] = []

    def read(offer: Offer) -> waiting.WaitingWrite | None:
        asked.append(offer.path)
        return table.read(offer)

    offer, damaged = table.offer("k"), replace(table.offer("damaged"), body=b"{}")
    first = waiting.reading(kept, "one", read)
    again = waiting.reading(kept, "one", read)
    assert first(offer) is again(offer)
    assert (first(damaged), again(damaged)) == (None, None)
    assert asked == [offer.path, damaged.path]
    assert waiting.reading(kept, "two", read)(offer) is not first(offer)
