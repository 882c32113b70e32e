"""The commit file of a group, where other writers committed some of its members."""

from __future__ import annotations

import json

import pytest

from safewrite.delta.write.abc import Write
from safewrite.delta.write.transaction import Transaction
from safewrite.protocol.ask import Limits
from safewrite.protocol.members import MembersMetError


def test_a_body_that_was_asked_for_before_a_member_was_met_is_not_given_again() -> None:
    """Who asks early, as for an upload before its turn, would commit the member a second time."""
    events = [Write(name, "v1:0:ab", 0) for name in ("a", "b")]
    group = Transaction("mine", Write.group("group", events), 0, Limits())
    assert b"mine" in group.body(2)
    theirs = {
        "commitId": "theirs",
        "writes": [{"key": "b", "fingerprint": "v1:0:ab", "rows": 0, "files": 0}],
        "txns": {},
    }
    assert group.examine_summary(1, json.dumps(theirs), "digest") is None
    with pytest.raises(MembersMetError):
        group.body(2)
