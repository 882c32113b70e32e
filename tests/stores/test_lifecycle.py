"""Rules of a bucket that remove what a table needs are found before anything is gone (T4-A3)."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest
from botocore.exceptions import ClientError

from safewrite.protocol.effects import Missing, Ok, Outcome
from safewrite.stores import lifecycle
from safewrite.stores.s3 import S3Objects

WRITTEN = "Mon, 02 Nov 2026 10:00:00 GMT"
COMMIT, KEY, MEMBERS = "_delta_log/0.json", "_safewrite/ledger/a.json", "_safewrite/members/a.json"


@pytest.fixture(autouse=True)
def _not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_warned", set())


class Bucket:
    """A store that applies one rule, by prefix, and says so as S3 does; ``rules`` None refuses to tell its rules."""

    def __init__(self, prefix: str, day: int, rules: list[dict[str, Any]] | None = None) -> None:
        self.prefix, self.day, self.rules = prefix, day, rules

    def put_object(self, **given: Any) -> dict[str, Any]:
        return self._answer(given["Key"])

    def get_object(self, **given: Any) -> dict[str, Any]:
        return self._answer(given["Key"]) | {"Body": io.BytesIO(b"x")}

    def get_bucket_lifecycle_configuration(self, **_: Any) -> dict[str, Any]:
        if self.rules is None:
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "GetBucketLifecycleConfiguration")
        return {"Rules": self.rules}

    def _answer(self, key: str) -> dict[str, Any]:
        headers = {"date": WRITTEN}
        if key.startswith(self.prefix):
            ends = f"{self.day:02d} Nov 2026 00:00:00 GMT"
            headers["x-amz-expiration"] = f'expiry-date="Tue, {ends}", rule-id="sweep"'
        return {"ResponseMetadata": {"HTTPHeaders": headers}}


def warnings_of(
    bucket: Bucket, *paths: str, caplog: pytest.LogCaptureFixture, prefix: str = "t"
) -> list[str]:
    with caplog.at_level(logging.WARNING, "safewrite"):
        for _ in range(2):
            for path in paths:
                S3Objects(bucket, "lake", prefix).put(path, b"x")
    return [record.getMessage() for record in caplog.records]


def test_t4_a3_a_writer_warns_once_of_a_rule_that_takes_what_it_wrote(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = warnings_of(Bucket("t/", 10), COMMIT, KEY, "part-0.parquet", caplog=caplog)
    assert len(told) == 3
    assert "Lifecycle rule 'sweep' of the bucket removes objects 7 days after they are written" in told[0]
    assert "Let the rule leave s3://lake/t/_safewrite/ledger/ for 15 days at least." in told[1]


@pytest.mark.parametrize(
    ("day", "path"),
    [
        (17, KEY),
        (17, MEMBERS),
        (10, "_delta_log/.tmp/0.json.a"),
        (10, "_safewrite/queue/a"),
        (10, "_delta_log/_last_checkpoint"),
    ],
)
def test_what_may_go_then_is_no_warning(day: int, path: str, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(Bucket("t/", day), path, caplog=caplog) == []


def test_keys_beside_iceberg_tables_are_known_by_their_folder(caplog: pytest.LogCaptureFixture) -> None:
    told = warnings_of(Bucket("wh/", 10), f"wh/{KEY}", caplog=caplog, prefix="")
    assert len(told) == 1
    assert "committed again" in told[0]
    assert warnings_of(Bucket("wh/", 17), f"wh/{KEY}", caplog=caplog, prefix="") == told


def found(bucket: Bucket, *samples: str) -> list[tuple[str, list[str]]]:
    findings = lifecycle.examine(bucket, "lake", "t", lifecycle.DELTA, samples)
    return [(one.details["rule"], one.details["takes"]) for one in findings]


def test_who_may_not_see_the_rules_learns_of_them_from_objects() -> None:
    """The header is all that a role without s3:GetLifecycleConfiguration has; tags and sizes are in it too."""
    assert found(Bucket("t/_safewrite/", 10), COMMIT, KEY) == [("sweep", ["t/_safewrite/ledger/"])]
    assert found(Bucket("t/_safewrite/", 17), COMMIT, KEY) == []
    assert found(Bucket("other/", 10), COMMIT, KEY) == []


def test_a_rule_takes_what_its_prefix_names() -> None:
    """A rule for the ledger alone was said to take data files and commits, and one for the queue as well."""

    def rule(name: str, prefix: str, **more: Any) -> dict[str, Any]:
        return {
            "ID": name,
            "Status": "Enabled",
            "Filter": {"Prefix": prefix},
            "Expiration": {"Days": 7},
        } | more

    day = "t/day=1/"
    rules = [
        rule("queue", "t/_safewrite/queue/"),
        rule("keys", "t/_safewrite/ledger/"),
        rule("kept", "t/_safewrite/ledger/", Expiration={"Days": 15}),
        rule("own", "t/_safewrite/", Expiration={"Days": 15}),
        rule("rows", day),
        rule("tagged", "", Filter={"Tag": {"Key": "a", "Value": "b"}}),
        rule("markers", "", Expiration={"ExpiredObjectDeleteMarker": True}),
    ]
    assert found(Bucket("x", 9, rules)) == [
        ("keys", ["t/_safewrite/ledger/"]),
        ("own", ["t/_safewrite/changes/"]),
        ("rows", ["t/"]),
    ]


def test_a_rule_that_is_known_by_both_is_told_once() -> None:
    whole = {"ID": "sweep", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 7}}
    (only,) = found(Bucket("", 10, [whole]), COMMIT, KEY, "part-0.parquet")
    assert only == ("sweep", [f"t/{kept.folder}" for kept in lifecycle.DELTA])


def test_an_object_that_goes_within_a_day_is_no_lasting_one() -> None:
    def answer(day: int, path: str = KEY) -> Outcome:
        return S3Objects(Bucket("t/_safewrite/", day), "lake", "t").get_lasting(path)

    assert answer(3) == Missing()
    assert answer(1) == Missing()
    assert answer(4) == Ok(b"x")
    assert answer(1, COMMIT) == Ok(b"x")
