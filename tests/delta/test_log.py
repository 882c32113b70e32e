"""Names of log files, and commits as the log spells them."""

from __future__ import annotations

import pytest

from safewrite.delta.log import actions
from safewrite.delta.log.actions import parse
from safewrite.errors import Kind, StorageError
from tests.delta.logs import PROTOCOL, add, body, metadata, remove


def test_only_exact_names_are_commits():
    assert actions.version_of(actions.commit_path(7)) == 7
    for path in (
        "_delta_log/7.json",
        "_delta_log/00000000000000000007.json.tmp",
        "_delta_log/.tmp/00000000000000000007.json",
        "_delta_log/00000000000000000001.00000000000000000007.compacted.json",
        "_delta_log/00000000000000000007.crc",
        "00000000000000000007.json",
    ):
        assert actions.version_of(path) is None


def test_the_three_kinds_of_checkpoint_are_told_apart():
    (classic,) = actions.checkpoint_paths(12)
    parts = actions.checkpoint_paths(12, 3)
    v2 = "_delta_log/00000000000000000012.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    assert actions.checkpoint_part_of(classic) == (12, 1, 1)
    assert [actions.checkpoint_part_of(path) for path in parts] == [(12, 1, 3), (12, 2, 3), (12, 3, 3)]
    assert actions.checkpoint_part_of(v2) is None
    assert [actions.checkpoint_version_of(path) for path in (classic, *parts, v2)] == [12] * 5


def test_a_commit_shows_each_kind_of_action():
    commit = parse(
        body(
            {"commitInfo": {"operation": "WRITE"}},
            PROTOCOL,
            metadata(),
            {"txn": {"appId": "a", "version": 3}},
            add("a.parquet"),
            add("b.parquet"),
            remove("c.parquet"),
            {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
        ),
        4,
    )
    assert commit.version == 4
    assert commit.commit_info == {"operation": "WRITE"}
    assert commit.protocol == PROTOCOL["protocol"]
    assert commit.metadata == metadata()["metaData"]
    assert commit.txns == [{"appId": "a", "version": 3}]
    assert {file["path"] for file in commit.adds()} == {"a.parquet", "b.parquet"}
    assert [file["path"] for file in commit.removes()] == ["c.parquet"]
    assert [domain["domain"] for domain in commit.domain_metadata] == ["d"]


def test_adds_of_an_append_are_parsed_when_they_are_asked_for():
    garbled = b'{"add": not json at all}\n'
    commit = parse(garbled * 3 + body({"commitInfo": {}}), 5)
    with pytest.raises(StorageError) as caught:
        commit.adds()
    assert caught.value.kind is Kind.CORRUPT_LOG


@pytest.mark.parametrize("windows_newlines", [False, True])
def test_newlines_of_either_kind_and_a_missing_last_one_are_fine(windows_newlines):
    text = body(PROTOCOL, add("a"), add("b"))
    text = text.replace(b"\n", b"\r\n") if windows_newlines else text.rstrip(b"\n")
    assert [file["path"] for file in parse(text, 0).adds()] == ["a", "b"]


def test_line_breaks_of_unicode_inside_a_value_do_not_split_a_line():
    name = "a\u2028b\u0085c.parquet"
    text = ('{"add":{"path":"' + name + '","partitionValues":{},"size":1}}\n').encode()
    assert [file["path"] for file in parse(text * 2, 0).adds()] == [name, name]


def test_actions_of_later_versions_are_passed_over_whatever_they_are_made_of():
    """A line may have one beside an action that is known; what a table asks of writers its features say."""
    beside = [{"add": add("a")["add"], "someday": ["a", 1]}, {"someday": 3}, {"someday": {"x": 1}}]
    found = parse(body(PROTOCOL, *beside, {**add("b"), "someday": "x"}), 0)
    assert [file["path"] for file in found.adds()] == ["a", "b"]


def test_every_torn_entry_is_refused_by_its_version():
    """A19: wherever the body is cut inside its last line, the commit is not read as a shorter one."""
    whole = body(PROTOCOL, metadata(), add("a.parquet", stats='{"numRecords":1,"nullCount":{"n":0}}'))
    last_line = whole.rstrip(b"\n").rindex(b"\n") + 1
    for cut in range(last_line + 1, len(whole) - 1):
        with pytest.raises(StorageError, match="Version 8 ") as caught:
            parse(whole[:cut], 8)
        assert caught.value.kind is Kind.CORRUPT_LOG


@pytest.mark.parametrize(
    "text", [b"", b"\n\n", b"[]\n", b'"x"\n', b'{"add":3}\n', b"\x00\x01\n", b'{"txn":[1]}\n']
)
def test_what_is_no_list_of_actions_is_refused(text):
    with pytest.raises(StorageError, match="Version 2 ") as caught:
        parse(text, 2)
    assert caught.value.kind is Kind.CORRUPT_LOG


def test_a_file_is_known_by_its_decoded_path_and_its_deletion_vector():
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "sizeInBytes": 4,
        "cardinality": 1,
    }
    assert actions.file_key({"path": "day=a%20b/x.parquet"}) == actions.file_key(
        {"path": "day=a b/x.parquet"}
    )
    assert actions.file_key({"path": "x", "deletionVector": None}) == ("x", None)
    assert actions.file_key({"path": "x", "deletionVector": vector}) == ("x", "uab^-aqEH.-t@S}K{vb[*k^")
    assert (
        actions.file_key({"path": "x", "deletionVector": {**vector, "offset": 4}})[1]
        == "uab^-aqEH.-t@S}K{vb[*k^@4"
    )
