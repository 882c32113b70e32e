"""T3-S3, S5, S6: calls end though answers do not, and clients of old credentials go."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw
from safewrite.protocol.ask import Limits, ask
from safewrite.protocol.effects import Backoff, Busy, Effect, Get, Now, Ok, Outcome, Unknown
from safewrite.stores import call_limit, clients
from safewrite.stores.dynamodb import DynamoDBLocks
from safewrite.stores.memory import MemoryObjects
from safewrite.stores.probe import probe_objects
from safewrite.stores.s3 import S3Objects
from tests.stores.slow_server import SlowServer, open_descriptors

pytestmark = pytest.mark.usefixtures("no_aws_settings")


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_limit, "REQUEST_S", 0.1)


@pytest.fixture(params=["head", "body"])
def dripping(request: pytest.FixtureRequest) -> Iterator[SlowServer]:
    with SlowServer(request.param) as server:
        yield server


def objects_at(server: SlowServer) -> S3Objects:
    return S3Objects(clients.shared_client("s3", None, server.options()), "lake", "t")


@pytest.mark.sweep("head")
def test_an_answer_that_drips_ends_with_its_call(dripping: SlowServer) -> None:
    objects = objects_at(dripping)
    locks = DynamoDBLocks(
        clients.shared_client("dynamodb", None, dripping.options()), "locks", "s3a://lake/t"
    )
    for step in (
        lambda: objects.get("a"),
        lambda: objects.get_tail("a", 8),
        lambda: objects.list("", "", 0),
        lambda: objects.put_if_absent("a", b"x"),
        lambda: locks.newest(other_spelling=False),
    ):
        with call_limit.within(0.2):
            outcome = step()
        assert isinstance(outcome, Unknown)
        assert (outcome.asks_max, outcome.advice) == (1, call_limit.ADVICE)


def test_an_answer_that_drips_ends_without_a_limit_of_the_call(
    dripping: SlowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_limit, "SLOW_S", 0.2)
    outcome = objects_at(dripping).get("a")
    assert isinstance(outcome, Unknown)
    assert outcome.asks_max is None


def test_a_table_is_not_opened_by_a_store_that_drips(dripping: SlowServer) -> None:
    with pytest.raises(sw.StorageError, match=r"raise timeout_s=") as caught:
        sw.open("s3://lake/t", arbiter="object-store", storage_options=dripping.options(), timeout_s=0.2)
    assert "Nothing was" in str(caught.value)
    assert dripping.asked < 4


def test_a_rest_catalog_that_drips_ends_the_call() -> None:
    with SlowServer("busy") as server:
        catalog = {"name": "slow", "type": "rest", "uri": server.url, "auth": {"type": "noop"}}
        table = load_catalog(**catalog)
        server.how = "body"
        with pytest.raises(sw.StorageError, match=r"raise timeout_s="):
            sw.open("sales.orders", catalog=table, timeout_s=0.2)


def test_a_rest_catalog_that_drips_from_the_start_is_not_made() -> None:
    """Its settings are asked for while PyIceberg makes it, before anything of ours has seen the object."""
    with SlowServer("body") as server:
        catalog = {"type": "rest", "uri": server.url, "auth": {"type": "noop"}}
        with pytest.raises(sw.StorageError, match="does not answer"):
            sw.open("sales.orders", catalog=catalog, timeout_s=0.2)


@pytest.mark.parametrize("how", ["same", "empty"])
def test_a_listing_that_does_not_advance_is_no_listing(how: str) -> None:
    with SlowServer(how) as server:
        outcome = objects_at(server).list("", "", 0)
        assert isinstance(outcome, Unknown)
        assert "does not advance" in outcome.detail
        assert server.asked <= 102


def test_a_listing_without_an_end_ends_with_its_call() -> None:
    with SlowServer("new") as server, call_limit.within(0.2):
        outcome = objects_at(server).list("", "", 0)
    assert isinstance(outcome, Unknown)
    assert outcome.asks_max == 1


# --- throttling -------------------------------------------------------------------------------------
class Storm:
    """A store that throttles until a time of its own clock, which moves with each pause."""

    def __init__(self, ends_s: float) -> None:
        self.ends_s, self.now_s, self.asked = ends_s, 0.0, 0

    def perform(self, effect: Effect) -> Outcome:
        if isinstance(effect, Backoff):
            self.now_s += min(2.0, 0.02 * 2 ** min(effect.attempt, 16)) / 2
            return Ok()
        if isinstance(effect, Now):
            return Ok(self.now_s)
        self.asked += 1
        return Busy("SlowDown", throttled=True) if self.now_s < self.ends_s else Ok(b"")


def run(world: Storm, limits: Limits) -> Outcome:
    steps = ask(Get("a"), limits)
    effect = next(steps)
    try:
        while True:
            effect = steps.send(world.perform(effect))
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


def test_a_storm_of_sixty_seconds_is_outlasted_within_the_time_of_the_call() -> None:
    assert run(Storm(60.0), Limits(timeout_s=90.0)) == Ok(b"")


def test_a_storm_that_is_longer_than_the_call_ends_with_it() -> None:
    storm = Storm(math.inf)
    assert isinstance(run(storm, Limits(timeout_s=30.0)), Busy)
    assert 30.0 <= storm.now_s < 45.0
    assert isinstance(run(Storm(math.inf), Limits(until_s=30.0)), Busy)


@pytest.mark.parametrize("status", [400, 503])
def test_a_store_that_throttles_says_so(status: int) -> None:
    from botocore.exceptions import ClientError

    from safewrite.stores.aws import classify_error

    for code in ("SlowDown", "ThrottlingException", "ProvisionedThroughputExceededException"):
        answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        outcome = classify_error(ClientError(answer, "PutObject"), write=True)
        assert isinstance(outcome, Busy if status == 400 else Unknown)
        assert outcome.throttled


# --- the probe --------------------------------------------------------------------------------------
class Forgetful(MemoryObjects):
    """A store that gives no clear answer to the first requests of each kind."""

    def __init__(self, fails: dict[str, int]) -> None:
        super().__init__()
        self.fails = fails

    def _failing(self, kind: str) -> bool:
        self.fails[kind] = self.fails.get(kind, 0) - 1
        return self.fails[kind] >= 0

    def get(self, path: str) -> Outcome:
        return Unknown("cut") if self._failing("get") else super().get(path)

    def put_if_absent(self, path: str, body: bytes) -> Outcome:
        return Busy("SlowDown", throttled=True) if self._failing("put") else super().put_if_absent(path, body)


@pytest.mark.parametrize("fails", [{"get": 1}, {"get": 4}, {"put": 1}, {"put": 7}, {"put": 30, "get": 5}])
def test_a_probe_asks_again_where_the_store_gives_no_clear_answer(fails: dict[str, int]) -> None:
    store = Forgetful(fails)
    probe_objects(store, Storm(0.0), Limits())
    assert max(store.fails.values()) < 0
    assert store.blobs == {}


# --- clients ----------------------------------------------------------------------------------------
def test_clients_of_credentials_that_change_at_each_open_are_bounded() -> None:
    """T3-S3: counted as clients that live, and as sockets that are open."""
    made: weakref.WeakSet[Any] = weakref.WeakSet()
    with SlowServer("same") as server:
        before = open_descriptors()
        for number in range(2 * 16):
            options = server.options() | {"AWS_SESSION_TOKEN": f"lent-{number}"}
            shared = clients.shared_client("s3", None, options)
            S3Objects(shared, "lake", "t").list("", "", 1)
            made.add(shared.here())
        gc.collect()
        assert len(made) <= 16
        # Each of them keeps a connection, whose other end is in this process too.
        assert open_descriptors() - before <= 2 * 16 + 8


def test_a_thread_signs_with_the_credentials_of_its_own_table() -> None:
    """Credentials that a REST catalog lends hold for one table; threads work on several."""
    from safewrite.iceberg.catalog import s3

    signed: dict[str, str] = {}
    turns = threading.Barrier(2)
    url = "http://127.0.0.1:9"
    own = s3._FileClients()

    def write(table: str) -> None:
        settings = {"AWS_ACCESS_KEY_ID": table, "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}
        client = own.of(settings | {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": url})
        turns.wait()  # both have given theirs before either signs
        signed[table] = client.generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"})

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ("orders", "items")))
    assert {table: f"={table}" in url for table, url in signed.items()} == {"orders": True, "items": True}
