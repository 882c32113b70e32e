"""Objects that go together go by one request, where the store knows it."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from safewrite.protocol.effects import Delete, Failed, Get, Missing, Ok, Together, Unknown
from safewrite.stores.memory import MemoryLedger
from safewrite.stores.s3 import S3Objects
from safewrite.stores.world import World


class Bucket:
    """A client of S3 that answers to deletes, and notes what it was asked."""

    def __init__(self, *, stay: dict[str, str] | None = None, refuses: str | None = None) -> None:
        self.stay, self.refuses = stay or {}, refuses
        self.asked: list[Any] = []

    def delete_objects(self, *, Bucket: str, Delete: Any) -> dict[str, Any]:  # noqa: N803 - names of boto3
        keys = [one["Key"] for one in Delete["Objects"]]
        self.asked.append(keys)
        if self.refuses is not None:
            told = {"Error": {"Code": self.refuses}, "ResponseMetadata": {"HTTPStatusCode": 400}}
            raise ClientError(told, "DeleteObjects")  # type: ignore[arg-type]
        return {"Errors": [{"Key": key, "Code": code} for key, code in self.stay.items() if key in keys]}

    def delete_object(self, *, Bucket: str, Key: str) -> None:  # noqa: N803
        self.asked.append(Key)

    def get_object(self, **given: Any) -> Any:
        raise ClientError(
            {"Error": {"Code": "NoSuchKey"}, "ResponseMetadata": {"HTTPStatusCode": 404}}, "GetObject"
        )


def world_of(bucket: Bucket, threads: int = 1) -> World:
    return World(S3Objects(bucket, "lake", "t"), ledger=MemoryLedger(), threads=threads)


def answers(world: World, *effects: Any) -> tuple[Any, ...]:
    outcome = world.perform(Together(effects))
    assert isinstance(outcome, Ok)
    assert isinstance(outcome.value, tuple)
    return outcome.value


def test_many_objects_go_by_one_request_among_other_effects() -> None:
    bucket = Bucket()
    found = answers(world_of(bucket), Delete("a"), Get("x"), Delete("b"))
    assert bucket.asked == [["t/a", "t/b"]]
    assert (found[0], type(found[1]), found[2]) == (Ok(), Missing, Ok())


@pytest.mark.parametrize("threads", [1, 8])
def test_objects_go_with_no_other_effect_beside(threads: int) -> None:
    """As files do that nobody names."""
    bucket = Bucket()
    assert answers(world_of(bucket, threads), Delete("a"), Delete("b")) == (Ok(), Ok())
    assert bucket.asked == [["t/a", "t/b"]]


@pytest.mark.parametrize("threads", [1, 8])
def test_no_effects_have_no_answers(threads: int) -> None:
    assert answers(world_of(Bucket(), threads)) == ()


def test_what_stays_is_said_of_each() -> None:
    """The answer to the request as a whole is 200 then."""
    bucket = Bucket(stay={"t/b": "AccessDenied", "t/c": "InternalError"})
    found = answers(world_of(bucket), *map(Delete, "abc"))
    assert [type(one) for one in found] == [Ok, Failed, Unknown]


def test_more_than_a_request_takes_go_by_several() -> None:
    bucket = Bucket()
    assert answers(world_of(bucket), *(Delete(f"{n}") for n in range(1001))) == (Ok(),) * 1001
    assert [len(keys) for keys in bucket.asked] == [1000, 1]


@pytest.mark.parametrize("code", ["NotImplemented", "MethodNotAllowed"])
def test_a_store_that_does_not_know_the_request_is_asked_for_each(code: str) -> None:
    bucket = Bucket(refuses=code)
    assert answers(world_of(bucket), Delete("a"), Delete("b")) == (Ok(), Ok())
    assert bucket.asked == [["t/a", "t/b"], "t/a", "t/b"]


def test_a_path_out_of_the_table_is_refused_alone() -> None:
    bucket = Bucket()
    found = answers(world_of(bucket), Delete("a"), Delete("../other"))
    assert (found[0], type(found[1])) == (Ok(), Failed)
    assert bucket.asked == ["t/a"]
