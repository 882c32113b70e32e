"""What a named write of Spark's makes of the commits that others made meanwhile."""

from __future__ import annotations

import json

from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.spark.transaction import SparkTransaction
from safewrite.delta.write.abc import Write
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Found
from tests.delta.logs import metadata

PEERS = b'{"commitInfo":{"operation":"WRITE"}}\n'


def named() -> SparkTransaction:
    """A write that knows the table up to version 12."""
    state = Snapshot(12, {"minReaderVersion": 1, "minWriterVersion": 2}, metadata()["metaData"])
    write = Write("orders/7", "spark1:ab", 3, fingerprint_int63=7)
    return SparkTransaction(commit_id="mine", write=write, timestamp_ms=0, limits=Limits(), state=state)


def summary(key: str) -> str:
    """What the lock table tells of a commit of safewrite."""
    write = Write(key, "spark1:ab", 3, fingerprint_int63=7)
    return json.dumps({"commitId": "theirs", "writes": [write.whole_entry()], "txns": {"orders": 7}})


def test_commits_of_peers_that_are_read_whole_and_of_ours_that_are_known_by_summary_may_follow_each_other() -> (
    None
):
    """A table of a mixed fleet: deltalake is in no lock table, so its commits have no summary."""
    write = named()
    found = [
        write.examine(13, PEERS), write.examine_summary(14, summary("orders/8"), "digest"), write.examine(15, PEERS),
        write.examine_summary(16, summary("orders/9"), "digest"),
    ]  # fmt: skip
    assert found == [None] * 4


def test_the_key_is_found_in_a_summary() -> None:
    write = named()
    assert write.examine(13, PEERS) is None
    assert write.examine_summary(14, summary("orders/7"), "digest") == Found(14, own=False)
