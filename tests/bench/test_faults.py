"""Fault plans: what a request is for, which fault hits it, and that a seed replays the whole."""

from __future__ import annotations

import json
from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.testing.faults import (
    FaultKind,
    FaultPlan,
    Faults,
    Request,
    RequestStep,
    Rule,
    Service,
    classify,
)
from safewrite.testing.replies import corrupt, error_reply

LOG = "/b/lake/t/_delta_log"
TIMED = (FaultKind.DELAY, FaultKind.LATE)


def s3(method: str, path: str, query: str = "", *, create_only: bool = False) -> Request:
    return Request(method=method, path=path, query=query, create_only=create_only)


def ddb(target: str, body: object) -> Request:
    return Request(method="POST", path="/", target=target, body=json.dumps(body).encode())


def item(table_path: str) -> dict[str, object]:
    return {"TableName": "locks", "Item": {"tablePath": {"S": table_path}, "fileName": {"S": "x"}}}


def key(table_path: str) -> dict[str, object]:
    return {"TableName": "locks", "Key": {"tablePath": {"S": table_path}, "fileName": {"S": "x"}}}


def query(table_path: str) -> dict[str, object]:
    return {"TableName": "locks", "ExpressionAttributeValues": {":t": {"S": table_path}}}


@pytest.mark.parametrize(
    ("request_", "step"),
    [
        (s3("PUT", "/b/lake/t/day=1/part-0.parquet"), RequestStep.PUT_DATA),
        (s3("GET", "/b/lake/t/part-0.parquet"), RequestStep.GET_DATA),
        (s3("HEAD", "/b/lake/t/part-0.parquet"), RequestStep.GET_DATA),
        (s3("PUT", f"{LOG}/.tmp/00000000000000000001.json.abc"), RequestStep.PUT_TEMP),
        (s3("PUT", f"{LOG}/_commit_1b2c.json.tmp"), RequestStep.PUT_TEMP),
        (s3("GET", f"{LOG}/.tmp/00000000000000000001.json.abc"), RequestStep.GET_TEMP),
        (s3("PUT", f"{LOG}/00000000000000000001.json", create_only=True), RequestStep.PUT_COMMIT),
        (s3("PUT", "/b/lake/t/%5Fdelta%5Flog/00000000000000000001.json"), RequestStep.PUT_COMMIT),
        (s3("GET", f"{LOG}/00000000000000000001.json"), RequestStep.GET_COMMIT),
        (s3("PUT", f"{LOG}/00000000000000000010.checkpoint.parquet"), RequestStep.PUT_CHECKPOINT),
        (s3("GET", f"{LOG}/_last_checkpoint"), RequestStep.GET_CHECKPOINT),
        (s3("GET", "/b", "list-type=2&prefix=lake%2Ft%2F_delta_log%2F"), RequestStep.LIST_LOG),
        (s3("GET", "/b/", "list-type=2&prefix=lake/t/_delta_log"), RequestStep.LIST_LOG),
        (s3("GET", "/b", "list-type=2&prefix=lake/t/"), RequestStep.LIST_OTHER),
        (s3("POST", "/b/lake/t/part-0.parquet", "uploads"), RequestStep.MULTIPART),
        (s3("PUT", "/b/lake/t/part-0.parquet", "partNumber=1&uploadId=u"), RequestStep.MULTIPART),
        (s3("POST", "/b/lake/t/part-0.parquet", "uploadId=u"), RequestStep.PUT_DATA),
        (s3("DELETE", "/b/lake/t/part-0.parquet", "uploadId=u"), RequestStep.DELETE),
        (s3("DELETE", "/b/lake/t/part-0.parquet"), RequestStep.DELETE),
        (s3("POST", "/b", "delete"), RequestStep.DELETE),
        (s3("PUT", "/b/lake/t/_safewrite/probe/x", create_only=True), RequestStep.PROBE),
        (s3("PUT", "/b/lake/t/_safewrite/ledger/k.json", create_only=True), RequestStep.PUT_LEDGER),
        (s3("PUT", "/b/lake/t/_safewrite/ledger/k.json"), RequestStep.UPDATE_LEDGER),
        (s3("GET", "/b/lake/t/_safewrite/ledger/k.json"), RequestStep.GET_LEDGER),
        (s3("PUT", "/b/lake/t/_safewrite/queue.json"), RequestStep.LEASE),
        (s3("PUT", "/b/other.txt"), RequestStep.PUT_OTHER),
        (s3("GET", "/b/other.txt"), RequestStep.GET_OTHER),
        (s3("PUT", "/b"), RequestStep.OTHER),
        (ddb("PutItem", item("s3a://b/lake/t")), RequestStep.DDB_PUT_ENTRY),
        (ddb("UpdateItem", key("s3a://b/lake/t")), RequestStep.DDB_UPDATE_ENTRY),
        (ddb("GetItem", key("s3a://b/lake/t")), RequestStep.DDB_GET_ENTRY),
        (ddb("Query", query("s3a://b/lake/t")), RequestStep.DDB_QUERY),
        (ddb("PutItem", item("safewrite:ledger:s3a://b/lake/t")), RequestStep.PUT_LEDGER),
        (ddb("UpdateItem", key("safewrite:ledger:s3a://b/lake/t")), RequestStep.UPDATE_LEDGER),
        (ddb("GetItem", key("safewrite:ledger:s3a://b/lake/t")), RequestStep.GET_LEDGER),
        (ddb("UpdateItem", key("safewrite:lease:s3a://b/lake/t")), RequestStep.LEASE),
        (ddb("PutItem", item("s3a://b/not-a-safewrite:ledger:")), RequestStep.DDB_PUT_ENTRY),
        (ddb("DescribeTable", {"TableName": "locks"}), RequestStep.DDB_OTHER),
        (ddb("UpdateTable", {"TableName": "locks"}), RequestStep.DDB_OTHER),
        (s3("PUT", "/b/ns/t/metadata/00001-6f0c.metadata.json"), RequestStep.PUT_METADATA),
        (s3("GET", "/b/ns/t/metadata/00001-6f0c.gz.metadata.json"), RequestStep.GET_METADATA),
        (s3("PUT", "/b/ns/t/metadata/00001-6f0c.metadata.json.gz"), RequestStep.PUT_METADATA),
        (s3("PUT", "/b/ns/t/metadata/snap-12-0-6f0c.avro"), RequestStep.PUT_MANIFEST_LIST),
        (s3("HEAD", "/b/ns/t/metadata/snap-12-0-6f0c.avro"), RequestStep.GET_MANIFEST_LIST),
        (s3("PUT", "/b/ns/t/metadata/6f0c-m0.avro"), RequestStep.PUT_MANIFEST),
        (s3("GET", "/b/ns/t/metadata/6f0c-m0.avro"), RequestStep.GET_MANIFEST),
        (s3("PUT", "/b/ns/t/data/00000-0-6f0c.parquet"), RequestStep.PUT_DATA),
        (s3("DELETE", "/b/ns/t/metadata/snap-12-0-6f0c.avro"), RequestStep.DELETE),
        (s3("POST", "/v1/namespaces/ns/tables/t"), RequestStep.CATALOG_COMMIT),
        (s3("POST", "/v1/prefix/namespaces/a%1Fb/tables/t"), RequestStep.CATALOG_COMMIT),
        (s3("POST", "/v1/transactions/commit"), RequestStep.CATALOG_COMMIT),
        (s3("POST", "/v1/namespaces/ns/tables"), RequestStep.CATALOG_CREATE),
        (s3("GET", "/v1/namespaces/ns/tables/t", "snapshots=all"), RequestStep.CATALOG_LOAD),
        (s3("HEAD", "/v1/namespaces/ns/tables/t"), RequestStep.CATALOG_LOAD),
        (s3("DELETE", "/v1/namespaces/ns/tables/t"), RequestStep.CATALOG_OTHER),
        (s3("POST", "/v1/namespaces/ns/tables/t/metrics"), RequestStep.CATALOG_OTHER),
        (s3("GET", "/v1/config", "warehouse=w"), RequestStep.CATALOG_OTHER),
        (s3("POST", "/v1/namespaces"), RequestStep.CATALOG_OTHER),
        (ddb("AWSGlue.UpdateTable", {}), RequestStep.CATALOG_COMMIT),
        (ddb("AWSGlue.CreateTable", {}), RequestStep.CATALOG_CREATE),
        (ddb("AWSGlue.GetTable", {}), RequestStep.CATALOG_LOAD),
        (ddb("AWSGlue.GetDatabase", {}), RequestStep.CATALOG_OTHER),
    ],
)
def test_a_request_is_known_by_its_step(request_: Request, step: RequestStep) -> None:
    assert classify(request_) is step


counts = st.integers(1, 5)
when = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"probability": st.floats(0, 1)}),
    st.fixed_dictionaries({"nth": counts}),
    st.fixed_dictionaries({"every": counts}),
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    kind = draw(st.sampled_from(FaultKind))
    return Rule(
        kind=kind,
        steps=tuple(draw(st.lists(st.sampled_from(RequestStep), max_size=2))),
        method=draw(st.sampled_from(["", "PUT", "GET"])),
        path_regex=draw(st.sampled_from(["", r"_delta_log/\d+", r"\.parquet$"])),
        times=draw(st.none() | counts),
        delay_s=0.5 if kind in TIMED else 0.0,
        **draw(when),
    )


plans = st.builds(FaultPlan, st.integers(0, 2**64), st.lists(rules(), max_size=4).map(tuple))
streams = st.lists(
    st.sampled_from(
        [
            s3("PUT", "/b/t/part-0.parquet"),
            s3("PUT", f"{LOG}/00000000000000000001.json"),
            s3("GET", f"{LOG}/00000000000000000001.json"),
            ddb("PutItem", item("s3a://b/t")),
        ]
    ),
    max_size=40,
)


@given(plans)
def test_a_plan_survives_json(plan: FaultPlan) -> None:
    assert FaultPlan.from_json(plan.to_json()) == plan


@given(plans, streams)
def test_the_same_plan_on_the_same_requests_gives_the_same_faults(
    plan: FaultPlan, stream: list[Request]
) -> None:
    first, second = Faults(plan), Faults(FaultPlan.from_json(plan.to_json()))
    assert [first.decide(request) for request in stream] == [second.decide(request) for request in stream]


@given(plans, streams, streams)
def test_a_rule_is_not_moved_by_requests_that_it_does_not_match(
    plan: FaultPlan, stream: list[Request], noise: list[Request]
) -> None:
    only_puts = FaultPlan(plan.seed, tuple(rule for rule in plan.rules if rule.method == "PUT"))
    gets = [request for request in noise if request.method == "GET"]
    quiet, noisy = Faults(only_puts), Faults(only_puts)
    for request in gets:
        assert noisy.decide(request) is None
    assert [quiet.decide(request) for request in stream] == [noisy.decide(request) for request in stream]


@given(plans, streams)
def test_no_rule_fires_more_often_than_its_times(plan: FaultPlan, stream: list[Request]) -> None:
    faults = Faults(plan)
    fired = Counter(fault.rule for request in stream if (fault := faults.decide(request)))
    for index, rule in enumerate(plan.rules):
        assert rule.times is None or fired[index] <= rule.times


def firings(rule: Rule, requests: int = 10, *, seed: int = 0) -> list[int]:
    faults = Faults(FaultPlan(seed, (rule,)))
    put = s3("PUT", "/b/t/part-0.parquet")
    return [number for number in range(1, requests + 1) if faults.decide(put)]


def test_nth_every_and_times_count_matching_requests_from_one() -> None:
    cut = FaultKind.CUT
    assert firings(Rule(kind=cut, nth=3)) == [3]
    assert firings(Rule(kind=cut, every=4)) == [4, 8]
    assert firings(Rule(kind=cut, times=2)) == [1, 2]
    assert firings(Rule(kind=cut, every=2, times=3)) == [2, 4, 6]
    assert firings(Rule(kind=cut, steps=(RequestStep.PUT_COMMIT,))) == []


def test_probability_is_a_share_and_the_seed_chooses_which() -> None:
    rule = Rule(kind=FaultKind.CUT, probability=0.2)
    assert 150 < len(firings(rule, 1000)) < 250
    assert firings(rule, 1000, seed=1) != firings(rule, 1000, seed=2)
    assert firings(Rule(kind=FaultKind.CUT, probability=0.0), 1000) == []
    assert len(firings(Rule(kind=FaultKind.CUT, probability=1.0), 1000)) == 1000


def test_the_first_rule_that_fires_has_the_request_and_the_others_still_count_it() -> None:
    plan = FaultPlan(0, (Rule(kind=FaultKind.CUT, nth=1), Rule(kind=FaultKind.ERROR_500, nth=2)))
    faults = Faults(plan)
    put = s3("PUT", "/b/t/part-0.parquet")
    assert [fault.kind if (fault := faults.decide(put)) else None for _ in range(3)] == [
        FaultKind.CUT,
        FaultKind.ERROR_500,
        None,
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "no_such_kind"},
        {},
        {"kind": "cut", "probability": 1.5},
        {"kind": "cut", "nth": 0},
        {"kind": "cut", "nth": 1, "every": 2},
        {"kind": "cut", "delay_s": 1.0},
        {"kind": "late"},
        {"kind": "cut", "path_regex": "("},
        {"kind": "cut", "steps": ["no_such_step"]},
        {"kind": "cut", "stepz": ["put_data"]},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        FaultPlan.from_json(json.dumps({"rules": [wrong]}))


def test_a_plan_with_unknown_names_is_refused() -> None:
    with pytest.raises(ValueError, match="seed and rules"):
        FaultPlan.from_json('{"sede": 1}')


def test_each_service_words_its_errors_its_own_way() -> None:
    throttled = error_reply(FaultKind.THROTTLE, "s3")
    assert throttled is not None
    assert (throttled.status, b"<Code>SlowDown</Code>" in throttled.body) == (503, True)
    limited = error_reply(FaultKind.THROTTLE, "dynamodb")
    assert limited is not None
    assert limited.status == 400
    assert json.loads(limited.body)["__type"].endswith("#ProvisionedThroughputExceededException")
    overtaken = error_reply(FaultKind.CONFLICT_409, "glue")
    assert overtaken is not None
    assert (overtaken.status, json.loads(overtaken.body)["__type"]) == (
        400,
        "ConcurrentModificationException",
    )
    refused = error_reply(FaultKind.CONFLICT_409, "rest")
    assert refused is not None
    error = json.loads(refused.body)["error"]
    assert (refused.status, error["code"], error["type"]) == (409, 409, "CommitFailedException")
    for kind in FaultKind:
        assert len({error_reply(kind, service) is None for service in get_args(Service)}) == 1
    assert error_reply(FaultKind.LOST_ANSWER, "s3") is None


@given(st.binary(min_size=1))
def test_corruption_halves_the_body_or_changes_one_bit(body: bytes) -> None:
    assert corrupt(FaultKind.TRUNCATE_BODY, body) == body[: len(body) // 2]
    flipped = corrupt(FaultKind.FLIP_BIT, body)
    assert len(flipped) == len(body)
    assert sum((a ^ b).bit_count() for a, b in zip(flipped, body, strict=True)) == 1
