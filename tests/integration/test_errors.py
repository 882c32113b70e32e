"""What goes wrong around a write: every error says what happened, what is safe, what to do, under which key."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

import safewrite as sw
from bench.servers import servers
from bench.servers.servers import storage_options
from safewrite.protocol.effects import (
    Effect,
    Failed,
    Get,
    LedgerGet,
    List,
    NewestEntry,
    Now,
    Outcome,
    Together,
)
from safewrite.stores.world import Performer
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from safewrite.testing.steps import Answers, Stepwise
from tests.integration.places import Place, impatient, once, rows
from tests.servers import PlannedProxy

NOTHING_WRITTEN = re.compile(
    r"[Nn]othing (of this \w+ )?(was|is) (written|committed|done)|none of these were written"
)


def says_it_all(error: sw.SafewriteError, *, key: str | None = None) -> None:
    """A stable kind, the key, that nothing was written, and a sentence that tells what to do after it."""
    assert error.kind
    assert error.key == key
    text = str(error)
    found = NOTHING_WRITTEN.search(text)
    assert found is not None, text
    assert len(re.split(r"[.;:] ", text)) >= 2, text


def test_an_address_where_nobody_listens_is_not_committed(new_place: Callable[[str], Place]) -> None:
    nobody = storage_options(f"http://127.0.0.1:{servers.free_port()}")
    place = Place("s3://lake/t", "object-store", nobody)
    with pytest.raises(sw.StorageError, match=r"EndpointConnectionError|onnect") as caught:
        place.open()
    says_it_all(caught.value)
    assert caught.value.kind == "storage"


def test_a_lock_table_that_is_not_there_is_answered_with_the_command_that_makes_it(guarded: Place) -> None:
    guarded.open(create=True).append(rows(1), key="before")
    with pytest.raises(sw.StorageError, match="records that the lock table 'delta_log'") as caught:
        replace(guarded, lock_table="absent_log").open()
    says_it_all(caught.value)
    assert caught.value.kind == "lock_table_unusable"


@pytest.mark.sweep("object-store")
def test_a_table_that_is_not_there_is_answered_with_how_to_make_it(place: Place) -> None:
    with pytest.raises(sw.TableNotFoundError, match=r"safewrite\.create\(\).*create=True") as caught:
        place.open()
    says_it_all(caught.value)
    assert isinstance(caught.value, LookupError)


@pytest.mark.sweep("object-store")
def test_a_bucket_that_is_not_there_is_not_committed(s3_place: Place) -> None:
    with pytest.raises(sw.NotCommittedError, match=r"NoSuchBucket|no such bucket") as caught:
        impatient(replace(s3_place, uri="s3://no-such-bucket-here/t").open(create=True)).append(
            rows(1), key="event"
        )
    says_it_all(caught.value, key=caught.value.key)


WRITES = {
    "dynamodb": (RequestStep.PUT_DATA, RequestStep.PUT_TEMP, RequestStep.PUT_LEDGER),
    "object-store": (RequestStep.PUT_DATA, RequestStep.PUT_COMMIT, RequestStep.PUT_LEDGER),
}


@pytest.mark.sweep("object-store", "dynamodb-put_temp")
@pytest.mark.parametrize(("arbiter", "step"), [(a, step) for a, steps in WRITES.items() for step in steps])
def test_a_write_that_is_forbidden_is_not_committed_and_the_key_serves_again(
    new_place: Callable[[str], Place], fault_proxy: PlannedProxy, arbiter: str, step: RequestStep
) -> None:
    """G3: credentials that lack a permission, or lost it between upload and commit."""
    place = new_place(arbiter)
    place.open(create=True).append(rows(1), key="before")
    table = place.through(fault_proxy).open()
    fault_proxy.plan(Rule(kind=FaultKind.FORBIDDEN_403, steps=(step,)))
    with pytest.raises(sw.StorageError) as caught:
        table.append(rows(2), key="event")
    says_it_all(caught.value, key="event")
    assert place.ids() == once(1)
    assert place.open().resolve("event") is None
    fault_proxy.clear()
    assert table.append(rows(2), key="event").outcome == "committed"
    assert place.ids() == once(1, 2)


@pytest.mark.sweep(
    "object-store",
    "dynamodb-InvalidSignatureException",
    "local-UnrecognizedClientException",
    "local-ExpiredTokenException",
    "dynamodb-ExpiredToken",
    "local-InvalidSignatureException",
)
@pytest.mark.parametrize(
    "code",
    ["ExpiredTokenException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredToken"],
)
def test_expired_credentials_are_not_committed(place: Place, code: str) -> None:
    """G3."""
    table = place.open(create=True)
    table.append(rows(1), key="before")
    table.world = Answers(table.world, "stage.put_data", Failed(f"ClientError: {code}"), perform=False)
    with pytest.raises(sw.StorageError, match=code) as caught:
        table.append(rows(2), key="event")
    says_it_all(caught.value, key="event")
    assert place.ids() == once(1)


class ReadOnly:
    """A world that may be looked at, to see whether a key was committed before, and no more."""

    def __init__(self, world: Performer) -> None:
        self.world = world

    def perform(self, effect: Effect) -> Outcome:
        """Nothing is written before an input is refused."""
        parts = effect.effects if isinstance(effect, Together) else (effect,)
        for part in parts:
            assert isinstance(part, LedgerGet | NewestEntry | List | Get | Now), f"{part} was asked for"
        return self.world.perform(effect)


@pytest.mark.sweep("object-store", "dynamodb", "local-<lambda>8", "local-<lambda>5")
@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.append(rows(1), key=""),
        lambda table: table.append(rows(1), key="k" * 2000),
        lambda table: table.append(rows(1), key="k", txn=("app", 1)),
        lambda table: table.append(rows(1), txn=("", 1)),
        lambda table: table.append(rows(1), txn=("app", -1)),
        lambda table: table.append(rows(1), schema_mode="overwrite"),
        lambda table: table.append(iter([rows(1)])),
        lambda table: table.append(rows(1).drop_columns("value"), key="k"),
        lambda table: table.append(rows(1).append_column("extra", [["x"]]), key="k"),
        lambda table: table.append([{"id": 1.5, "value": "x"}], key="k"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_written(
    place: Place, call: Callable[..., object]
) -> None:
    """Promise 5."""
    place.open(create=True).append(rows(0), key="before")
    table = place.open()
    table.world = ReadOnly(table.world)
    with pytest.raises((sw.InvalidInputError, sw.WouldAlterError)) as caught:
        call(table)
    assert isinstance(caught.value, ValueError)
    assert re.search(r"[Nn]othing was|not written|[Nn]o row", str(caught.value)), str(caught.value)
    assert place.ids() == once(0)


@pytest.mark.sweep("object-store")
def test_when_others_take_every_version_the_write_gives_up_and_is_absent(s3_place: Place) -> None:
    """C8."""
    s3_place.open(create=True).append(rows(0), key="before")
    taken: list[int] = []

    class Rivals(Stepwise):
        def _step(self, step: str, effect: Effect) -> Outcome:
            if step.startswith(("commit.put_commit", "commit.put_entry")) and "backoff" not in step:
                taken.append(100 + len(taken))
                s3_place.open().append(rows(taken[-1]), key=f"rival-{taken[-1]}")
            return self.world.perform(effect)

    table = impatient(s3_place.open(group="never"), attempts=3)
    table.world = Rivals(table.world)
    with pytest.raises(sw.RetriesExhaustedError) as caught:
        table.append(rows(1), key="event")
    says_it_all(caught.value, key="event")
    assert s3_place.ids() == once(0, *taken)
