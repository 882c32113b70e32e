"""Signed requests and boto3's client come to the same outcomes: whatever a server answers, and under each fault of the proxy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from safewrite.protocol.effects import Ok, Unknown
from safewrite.stores.dynamodb import DynamoDBLocks
from safewrite.stores.s3 import S3Objects
from safewrite.testing.faults import FaultKind, Rule
from tests.stores.scripted import ANSWERS, NO_BODY, Scripted, xml
from tests.stores.two_clients import ENTRY, S3_STEPS, STEPS, both, known_by

if TYPE_CHECKING:
    from tests.servers import PlannedProxy

PERFORMED = {kind for kind in FaultKind if kind.name.startswith("LOST_ANSWER")} | {
    FaultKind.DELAY,
    FaultKind.PRECONDITION_412,
}

pytestmark = pytest.mark.usefixtures("no_aws_settings")

EACH_STEP = [(service, step) for service, steps in STEPS.items() for step in steps]
# boto3's client asks for the region without an end, or says that ours is none.
NOT_ALIKE = {"a redirect without a region", "a redirect to no region"}
# boto3's client takes an empty answer for an empty listing; of a body that is no XML it says so in other words.
NOT_ALIKE_BY_STEP = {
    "list": {"empty", "gone", "a range"},
    **{key: {"a range"} for key in ("put", "put_if_absent", "delete", "delete_many")},
}
OF_MANY = {"content-md5", "content-type", "x-amz-checksum-crc32", "x-amz-sdk-checksum-algorithm"}
"""How a request for many objects proves its body: ours by its MD5, which older stores know too."""
NOT_SIGNED = {
    "authorization",
    "user-agent",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "x-amz-date",
    "host",
    "expect",
}


@pytest.fixture(scope="module")
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.close()


@pytest.fixture(scope="module")
def pairs(scripted: Scripted) -> dict[str, dict[str, Any]]:
    return {service: both(service, scripted.options()) for service in STEPS}


def asked(pair: dict[str, Any], step: Any) -> dict[str, Any]:
    """What both clients make of a step; an answer that has not what it must is an error of either."""
    found: dict[str, Any] = {}
    for name, client in pair.items():
        try:
            found[name] = known_by(step(client))
        except KeyError as error:
            found[name] = repr(error)
    return found


@pytest.mark.sweep(
    "s3-get_range",
    "s3-delete",
    "dynamodb-queue",
    "dynamodb-ledger.intend_many",
    "dynamodb-ledger.commit_many",
    "dynamodb-put_entry",
)
@pytest.mark.parametrize(("service", "step"), EACH_STEP)
def test_whatever_is_answered_both_clients_come_to_one_outcome(
    service: str, step: str, scripted: Scripted, pairs: dict[str, dict[str, Any]]
) -> None:
    differing, kinds = {}, set()
    for name, answer in ANSWERS[service].items():
        if name in NOT_ALIKE | NOT_ALIKE_BY_STEP.get(step, set()):
            continue
        scripted.answer, scripted.cut_at = answer, None
        found = asked(pairs[service], STEPS[service][step])
        kinds.add(str(found["boto3"])[:12])
        if found["signed"] != found["boto3"]:
            differing[name] = found
    assert differing == {}
    assert len(kinds) >= 4  # the answers are not all one to the step


@pytest.mark.parametrize(("service", "step"), EACH_STEP)
def test_both_clients_ask_for_the_same(
    service: str, step: str, scripted: Scripted, pairs: dict[str, dict[str, Any]]
) -> None:
    """The line of the request, its body's hash and each header that has a meaning."""
    scripted.answer, scripted.cut_at = (400, {}, xml("No")), None
    seen, unlike = {}, OF_MANY if step == "delete_many" else set()
    for name, client in pairs[service].items():
        scripted.heads.clear()
        STEPS[service][step](client)
        ((line, headers),) = scripted.heads
        seen[name] = (
            line,
            {key: value for key, value in headers.items() if key not in NOT_SIGNED | unlike},
            scripted.body(),
        )
        credential = re.search(r"Credential=a/\d{8}/us-east-1/(\w+)/aws4_request", headers["authorization"])
        assert credential is not None
        assert credential[1] == service
    assert seen["signed"] == seen["boto3"]


@pytest.mark.parametrize(("service", "step"), EACH_STEP)
def test_an_answer_that_is_cut_short_is_no_answer(
    service: str, step: str, scripted: Scripted, pairs: dict[str, dict[str, Any]]
) -> None:
    scripted.answer = (
        200,
        {},
        b'{"Item": {"key": {"S": "k"}}}'
        if service == "dynamodb"
        else b"<ListBucketResult>x</ListBucketResult>",
    )
    # An upload is known by the head of its answer.
    whole_body = (
        () if step in ("put", "put_if_absent", "delete", "delete_many") else (len(scripted.answer[2]),)
    )
    for cut_at in (1, 8, *whole_body, 10_000):
        scripted.cut_at = cut_at
        outcome = STEPS[service][step](pairs[service]["signed"])
        for one in outcome if isinstance(outcome, tuple) else [outcome]:
            assert isinstance(one, Unknown)


def test_a_large_body_is_sent_once_the_store_agrees(
    scripted: Scripted, pairs: dict[str, dict[str, Any]]
) -> None:
    """A refusal of a large upload is heard; a small one needs no second trip."""
    objects = S3Objects(pairs["s3"]["signed"], "lake", "t")
    for size, expects in ((2**16, None), (2**16 + 1, "100-continue")):
        scripted.answer, scripted.cut_at = (403, {}, xml("AccessDenied")), None
        scripted.heads.clear()
        assert "AccessDenied" in getattr(objects.put("a", b"x" * size), "detail", "")
        assert scripted.heads[0][1].get("expect") == expects


# --- a bucket of another region -----------------------------------------------------------------------
@pytest.mark.sweep("answer2", "answer3", "get_tail")
@pytest.mark.parametrize("step", S3_STEPS)
@pytest.mark.parametrize(
    "answer",
    [
        (301, {"x-amz-bucket-region": "eu-west-1"}, xml("PermanentRedirect")),
        (400, {}, xml("AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>")),
        (400, {"x-amz-bucket-region": "eu-west-1"}, xml("IllegalLocationConstraintException")),
        (307, {"x-amz-bucket-region": "eu-west-1"}, NO_BODY),
    ],
)
def test_a_bucket_of_another_region_is_asked_there(step: str, answer: Any, scripted: Scripted) -> None:
    """Once, by both; the second request goes there at once."""
    for client in both("s3", scripted.options()).values():
        scripted.answers, scripted.answer, scripted.cut_at = [answer], (404, {}, xml("NoSuchKey")), None
        scripted.heads.clear()
        for _ in range(2):
            S3_STEPS[step](client)
        signed_for = [
            re.search(r"\d{8}/([\w-]+)/s3/", headers["authorization"])[1] for _, headers in scripted.heads
        ]  # type: ignore[index]
        assert signed_for == ["us-east-1", "eu-west-1", "eu-west-1"]


def test_a_redirect_that_leads_nowhere_is_told(scripted: Scripted, pairs: dict[str, dict[str, Any]]) -> None:
    """Every answer is a redirect; boto3's client would follow it without an end."""
    for name in NOT_ALIKE:
        scripted.answer, scripted.cut_at = ANSWERS["s3"][name], None
        scripted.heads.clear()
        outcome = S3_STEPS["put_if_absent"](pairs["s3"]["signed"])
        assert "Redirect" in outcome.detail
        assert len(scripted.heads) <= 2


# --- the fault proxy ----------------------------------------------------------------------------------
@pytest.mark.sweep(
    "error_502",
    "error_504",
    "lost_answer_502",
    "lost_answer_504",
    "late",
    "error_500",
    "lost_answer_500",
    "lost_answer_503",
    "flip_bit",
    "forbidden_403",
    "throttle",
    "conflict_409",
    "error_503",
    "precondition_412",
)
@pytest.mark.parametrize("kind", FaultKind)
def test_under_each_fault_both_clients_come_to_one_outcome(
    kind: FaultKind, fault_proxy: PlannedProxy, bucket: str, dynamodb_table: str
) -> None:
    """On real servers: the faults of the stress runs, and what a look afterwards finds."""
    options = fault_proxy.storage_options()
    delay_s = 0.05 if kind in (FaultKind.DELAY, FaultKind.LATE) else 0.0
    told: dict[str, list[Any]] = {"signed": [], "boto3": []}
    for service in ("s3", "dynamodb"):
        for name, client in both(service, options).items():
            if service == "s3":
                objects = S3Objects(client, bucket, name)
                objects.put("there", b"x" * 64)
                calls = [
                    lambda o=objects: o.get("there"), lambda o=objects: o.get_tail("there", 8), lambda o=objects: o.list("", "", 0),
                    lambda o=objects: o.put("new", b"y" * 64), lambda o=objects: o.put_if_absent("made", b"z" * 64),
                    lambda o=objects: o.delete("there"), lambda o=objects: o.get("not there"),
                ]  # fmt: skip
            else:
                locks = DynamoDBLocks(client, dynamodb_table, f"s3a://{name}/t")
                locks.put_entry_if_absent(ENTRY)
                calls = [
                    lambda o=locks: o.newest(), lambda o=locks: o.get_entry(ENTRY.file_name), lambda o=locks: o.entries_after("0"),
                    lambda o=locks: o.put_entry_if_absent(ENTRY), lambda o=locks: o.complete_entry(ENTRY, 9),
                ]  # fmt: skip
            for call in calls:
                fault_proxy.plan(Rule(kind=kind, delay_s=delay_s, times=1))
                told[name].append(kind_of(call()))
                fault_proxy.clear()
            look = objects.get("made") if service == "s3" else locks.get_entry(ENTRY.file_name)
            assert isinstance(look, Ok) or kind not in PERFORMED
    assert told["signed"] == told["boto3"]
    # (A bit that is flipped in an answer without a body changes nothing.)
    assert fault_proxy.fired() == 2 * len(told["signed"]) or kind in (
        FaultKind.FLIP_BIT,
        FaultKind.TRUNCATE_BODY,
    )


def kind_of(outcome: Any) -> Any:
    """An outcome without its words."""
    return (
        type(outcome).__name__,
        getattr(outcome, "asks_max", None),
        getattr(outcome, "throttled", None),
        getattr(outcome, "advice", ""),
    )
