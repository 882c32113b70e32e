"""What became of the keys of one call stands in one item of the lock table, and each key finds it by its own item."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from safewrite.protocol.effects import Effect, LedgerCommit, LedgerIntend, Ok, Outcome, Together, Unknown
from safewrite.protocol.values import LedgerRecord
from safewrite.stores.dynamodb_ledger import DynamoDBLedger
from safewrite.stores.memory import MemoryObjects
from safewrite.stores.world import World

RECORDS = [LedgerRecord(f"event-{n}", n, f"v1:{n}:ab", table_id="t") for n in range(250)]
DONE = [replace(record, version=9) for record in RECORDS]
FUTURE_S = 4_000_000_000


class Client:
    """A client of DynamoDB whose writes are listed; the answers of some are lost, before or after they are performed."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.writes: list[tuple[str, dict[str, Any]]] = []
        self.lose: Callable[[str, dict[str, Any]], bool] = lambda name, given: False
        self.performed = True

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self.client, name)

        def asked(**given: Any) -> Any:
            if name.startswith(("put", "update", "transact_write")):
                self.writes.append((name, given))
            if not self.lose(name, given):
                return ask(**given)
            if self.performed:
                ask(**given)
            raise OSError("lost")

        return asked


class Lake:
    """One table's ledger in several processes."""

    def __init__(self, client: Any, name: str) -> None:
        self.client, self.name, self.path = Client(client), name, f"s3a://{uuid.uuid4()}/t"

    def ledger(self, *, in_groups: bool = True) -> DynamoDBLedger:
        return DynamoDBLedger(self.client, self.name, self.path, in_groups=in_groups)

    def process(self, *, in_groups: bool = True) -> World:
        return World(MemoryObjects(), ledger=self.ledger(in_groups=in_groups), sleep=lambda _: None)

    def found(self, records: list[LedgerRecord]) -> list[Outcome]:
        """What another process finds of each key, asked for one by one and together."""
        alone = [self.ledger().get(record.key) for record in records]
        assert list(self.ledger().get_many([record.key for record in records])) == alone
        return alone

    def results(self) -> list[Any]:
        """The results of groups that were put."""
        puts = [given["Item"] for name, given in self.client.writes if name == "put_item"]
        return [item for item in puts if "landed" in item]


@pytest.fixture
def lake(dynamodb: Any, dynamodb_table: str) -> Lake:
    return Lake(dynamodb, dynamodb_table)


def ask(ours: World, effect: type[Any], records: list[LedgerRecord]) -> list[Outcome]:
    effects: tuple[Effect, ...] = tuple(effect(record) for record in records)
    outcome = ours.perform(Together(effects))
    assert isinstance(outcome, Ok)
    assert isinstance(outcome.value, tuple)
    return list(outcome.value)


def of_result(name: str, given: dict[str, Any]) -> bool:
    return "landed" in str(given) or "safewrite:group:" in str(given)


def test_results_of_many_keys_are_few_writes_and_each_key_finds_its_own(lake: Lake) -> None:
    ours = lake.process()
    assert ask(ours, LedgerIntend, RECORDS) == [Ok()] * 250
    assert lake.found(RECORDS[:100]) == [Ok(record) for record in RECORDS[:100]]
    told = [replace(record, version=9 + n) for n, record in enumerate(RECORDS)]
    assert ask(ours, LedgerCommit, told) == [Ok()] * 250
    assert [name for name, _ in lake.client.writes] == ["transact_write_items"] * 3 + ["put_item"] * 3
    assert [lake.found(told[at : at + 100]) for at in (0, 100)] == [
        [*map(Ok, told[at : at + 100])] for at in (0, 100)
    ]


def test_a_result_outlives_the_intents_that_lead_to_it(lake: Lake) -> None:
    """DynamoDB removes what has expired days late, in any order."""
    ours = lake.process()
    ask(ours, LedgerIntend, RECORDS[:3])
    ask(ours, LedgerCommit, DONE[:3])
    intents = lake.client.writes[0][1]["TransactItems"]
    (result,) = lake.results()
    day_s = 24 * 3600
    assert all(
        int(result["expireTime"]["N"]) > int(one["Put"]["Item"]["expireTime"]["N"]) + 2 * day_s
        for one in intents
    )


def test_a_writer_of_the_last_release_finds_the_intent_and_reads_the_log_from_its_base(lake: Lake) -> None:
    ours = lake.process()
    ask(ours, LedgerIntend, RECORDS[:3])
    ask(ours, LedgerCommit, DONE[:3])
    key = lake.ledger()._key(RECORDS[1].key)
    item = lake.client.get_item(TableName=lake.name, Key=key, ConsistentRead=True)["Item"]
    item.pop("expireTime")
    assert item.pop("group")["S"]
    assert item == key | {
        "key": {"S": "event-1"},
        "baseVersion": {"N": "1"},
        "fingerprint": {"S": "v1:1:ab"},
        "tableId": {"S": "t"},
    }


def test_a_doubt_of_the_last_release_takes_the_result_away_and_leaves_the_base(lake: Lake) -> None:
    """It replaces the item; the log still shows the commit to whoever reads it from there."""
    ours = lake.process()
    ask(ours, LedgerIntend, RECORDS[:3])
    ask(ours, LedgerCommit, DONE[:3])
    doubted = replace(RECORDS[1], in_doubt_at=4)
    lake.client.put_item(TableName=lake.name, Item=lake.ledger()._item(doubted, FUTURE_S))
    assert lake.found(RECORDS[:3]) == [Ok(DONE[0]), Ok(doubted), Ok(DONE[2])]


@pytest.mark.long
def test_a_result_counts_before_a_doubt_of_another_attempt(lake: Lake) -> None:
    ours, other = lake.process(), lake.ledger()
    ask(ours, LedgerIntend, RECORDS[:3])
    other.commit(replace(RECORDS[1], in_doubt_at=4), FUTURE_S)
    assert lake.found(RECORDS[1:2]) == [Ok(replace(RECORDS[1], in_doubt_at=4))]
    ask(ours, LedgerCommit, DONE[:3])
    assert lake.found(RECORDS[:3]) == [*map(Ok, DONE[:3])]
    other.commit_many([replace(record, in_doubt_at=5) for record in RECORDS[:3]], FUTURE_S)
    assert lake.found(RECORDS[:3]) == [*map(Ok, DONE[:3])]


def test_a_key_whose_intent_is_of_another_call_is_told_by_itself(lake: Lake) -> None:
    earlier, ours = lake.process(in_groups=False), lake.process()
    ask(earlier, LedgerIntend, RECORDS[:5])
    answers = ask(ours, LedgerIntend, RECORDS[3:8])
    assert [isinstance(one, Ok) for one in answers] == [False, False, True, True, True]
    ask(ours, LedgerCommit, DONE[3:8])
    assert lake.found(RECORDS[:8]) == [*map(Ok, RECORDS[:3]), *map(Ok, DONE[3:8])]


def test_members_that_were_left_out_are_not_among_the_results(lake: Lake) -> None:
    ours = lake.process()
    ask(ours, LedgerIntend, RECORDS[:6])
    ask(ours, LedgerCommit, DONE[:4])
    assert lake.found(RECORDS[:6]) == [*map(Ok, DONE[:4]), *map(Ok, RECORDS[4:6])]
    ask(ours, LedgerCommit, DONE[4:6])
    assert lake.found(RECORDS[:6]) == [*map(Ok, DONE[:6])]


@pytest.mark.parametrize("performed", [True, False])
def test_a_result_whose_answer_was_lost_is_put_again_as_it_was(lake: Lake, performed: bool) -> None:
    ours, lake.client.performed = lake.process(), performed
    ask(ours, LedgerIntend, RECORDS[:6])
    lake.client.lose = of_result
    for _ in range(2):
        assert [type(one) for one in ask(ours, LedgerCommit, DONE[:6])] == [Unknown] * 6
    assert ask(ours, LedgerCommit, DONE[:3]) == [Ok()] * 3
    lake.client.lose = lambda name, given: False
    assert ask(ours, LedgerCommit, DONE[3:6]) == [Ok()] * 3
    assert len({item["landed"]["S"] for item in lake.results()}) == 1
    assert lake.found(RECORDS[:6]) == [*map(Ok, DONE[:6])]


def test_a_result_that_cannot_be_read_is_unknown_and_not_missing(lake: Lake) -> None:
    ours = lake.process()
    ask(ours, LedgerIntend, RECORDS[:3])
    ask(ours, LedgerCommit, DONE[:3])
    lake.client.lose = of_result
    assert [type(one) for one in lake.found(RECORDS[:3])] == [Unknown] * 3
    lake.client.lose = lambda name, given: False
    (result,) = lake.results()
    lake.client.put_item(TableName=lake.name, Item=result | {"landed": {"S": "{"}})
    assert [type(one) for one in lake.found(RECORDS[:3])] == [Unknown] * 3


def test_the_list_of_keys_tells_what_became_of_them(lake: Lake) -> None:
    ours = lake.process()
    ask(ours, LedgerIntend, RECORDS[:4])
    ask(ours, LedgerCommit, DONE[:3])
    records, whole = lake.ledger(in_groups=False).records(100)
    assert whole
    assert sorted(records, key=lambda one: one.key) == [*DONE[:3], RECORDS[3]]


def test_keys_of_iceberg_tables_tell_by_themselves(lake: Lake) -> None:
    ours = lake.process(in_groups=False)
    ask(ours, LedgerIntend, RECORDS[:3])
    ask(ours, LedgerCommit, DONE[:3])
    assert lake.results() == []
    assert "group" not in str(lake.client.writes)
    assert lake.found(RECORDS[:3]) == [*map(Ok, DONE[:3])]
