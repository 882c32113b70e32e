"""T3-D12: the probe of a stand-in for Glue needs no right that a writer lacks, and leaves no table behind."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

import safewrite as sw
from safewrite.iceberg import connect, glue_probe, opening
from tests.iceberg.forgetful import forgetful_glue
from tests.iceberg.places import Place
from tests.integration.places import once

on_glue = pytest.mark.parametrize("lab", ["glue"], indirect=True)

CALLS = ("create_table", "delete_table", "update_table", "get_table")


class Limited:
    """A Glue client whose user may not do some things, and whose answers may be lost; it notes what was asked."""

    def __init__(self, inner: Any, *, denied: tuple[str, ...] = (), lost: tuple[str, ...] = ()) -> None:
        self._inner, self._denied, self._lost = inner, denied, list(lost)
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name not in CALLS:
            return call

        def limited(**request: Any) -> Any:
            self.asked.append(name)
            if name in self._denied:
                raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, name)
            answer = call(**request)
            if name in self._lost:
                self._lost.remove(name)
                raise ClientError({"Error": {"Code": "InternalServiceException", "Message": "lost"}}, name)
            return answer

        return limited


def asked(place: Place, **limits: Any) -> tuple[bool, Limited, list[str]]:
    """Whether Glue compares, what was asked, and the scratch tables that are left."""
    client: Any = place.catalog().glue  # type: ignore[attr-defined]
    database, table = place.name.split(".")
    limited = Limited(client, **limits)
    try:
        answer = glue_probe.compares(limited, database, table)
    finally:
        tables = [one["Name"] for one in client.get_tables(DatabaseName=database)["TableList"]]
    return answer, limited, [one for one in tables if one.startswith("safewrite_probe")]


@pytest.mark.sweep("('create_table',)", "('delete_table',)")
@on_glue
@pytest.mark.parametrize(
    "denied", [(), ("create_table",), ("delete_table",), ("create_table", "delete_table")], ids=str
)
def test_t3_d12_who_may_only_update_is_answered_and_nothing_is_left(
    place: Place, denied: tuple[str, ...]
) -> None:
    place.create(1)
    before = place.plain().metadata_location
    answer, limited, left = asked(place, denied=denied)
    assert (answer, left) == (True, [])
    assert ("create_table" in limited.asked) is ("delete_table" not in denied)
    assert place.plain().metadata_location == before


@on_glue
@pytest.mark.parametrize("lost", ["create_table", "update_table", "get_table"])
def test_t3_d12_a_probe_that_fails_leaves_no_table(place: Place, lost: str) -> None:
    """Each failed try left one, for the answer of its creation was outside of what cleans up."""
    place.create(1)
    client: Any = place.catalog().glue  # type: ignore[attr-defined]
    with pytest.raises(ClientError):
        asked(place, lost=(lost,))
    tables = [one["Name"] for one in client.get_tables(DatabaseName=place.name.split(".")[0])["TableList"]]
    assert not [one for one in tables if one.startswith("safewrite_probe")]


@on_glue
def test_t3_d12_a_scratch_table_that_cannot_be_deleted_is_named(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    limited = Limited(place.catalog().glue, denied=("delete_table",))  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING, "safewrite"):
        glue_probe._delete(limited, place.name.split(".")[0], "safewrite_probe_x")
    assert "safewrite_probe_x of the probe could not be deleted" in caplog.text
    assert limited.asked == ["delete_table"] * 3


@pytest.mark.sweep("('create_table',)")
@on_glue
@pytest.mark.parametrize("denied", [(), ("create_table",)], ids=str)
def test_t3_d12_one_that_does_not_compare_is_found_all_the_same(
    place: Place, denied: tuple[str, ...]
) -> None:
    place.create(1)
    with forgetful_glue(place.properties["glue.endpoint"]) as url:
        other = replace(place, properties={**place.properties, "glue.endpoint": url})
        client = Limited(other.catalog().glue, denied=denied)  # type: ignore[attr-defined]
        assert glue_probe.compares(client, *place.name.split(".")) is False
    assert place.ids() == once(1)


@pytest.mark.parametrize(
    ("address", "is_aws"),
    [
        ("https://glue.eu-west-1.amazonaws.com", True),
        ("https://glue.eu-west-1.amazonaws.com/", True),
        ("https://glue.eu-west-1.amazonaws.com:443", True),
        ("https://glue.eu-west-1.api.aws", True),
        ("https://glue.cn-north-1.amazonaws.com.cn", True),
        ("https://vpce-1-x.glue.eu-west-1.vpce.amazonaws.com", True),
        ("http://127.0.0.1:4566", False),
        ("https://amazonaws.com.example.org", False),
        ("https://notamazonaws.com", False),
    ],
)
def test_t3_d12_an_address_of_aws_is_known_in_every_spelling(address: str, is_aws: bool) -> None:
    """A port, a slash or another partition made a scratch table in AWS's own Glue at each open."""
    assert glue_probe.is_of_aws(address) is is_aws


@on_glue
def test_t3_d12_a_right_that_is_missing_is_named(place: Place) -> None:
    """It was "This often passes: open the table again"."""
    head = place.create(1)._format._cached.existing()  # type: ignore[attr-defined]
    catalog = SimpleNamespace(name="lab", glue=Limited(place.catalog().glue, denied=CALLS))  # type: ignore[attr-defined]
    with pytest.raises(sw.StorageError, match="may not do this") as caught:
        opening._glue_compares(catalog, head)
    assert "often passes" not in str(caught.value)


def test_the_region_of_the_environment_is_glues_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 reads AWS_DEFAULT_REGION only, and the advice was to set what was set."""
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    keys = {"glue.access-key-id": "a", "glue.secret-access-key": "b"}
    own = connect._catalog({"type": "glue", **keys}, {})
    assert own.glue.meta.region_name == "eu-central-1"  # type: ignore[attr-defined]
    named = connect._catalog({"type": "glue", "glue.region": "us-east-1", **keys}, {})
    assert named.glue.meta.region_name == "us-east-1"  # type: ignore[attr-defined]
