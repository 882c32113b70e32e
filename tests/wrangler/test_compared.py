"""awswrangler's calls beside safewrite's: the table of docs/wrangler.md is what comes of them."""

from __future__ import annotations

import json
import logging

import pytest

from bench.wrangler.__main__ import PAGE, put
from bench.wrangler.calls import DELTA, ICEBERG
from bench.wrangler.compare import KEPT, judge, page

pytestmark = pytest.mark.filterwarnings("ignore")


def test_each_call_has_its_line_in_the_docs_and_its_answer_of_awswrangler() -> None:
    """The cheap form: 72 calls, of both libraries; those that differ say why."""
    text = PAGE.read_text()
    lines = [
        line.split(" | ") for line in text.partition("<!-- compared -->")[2].splitlines() if "` | " in line
    ]
    assert [line[0].removeprefix("| ") for line in lines] == [call.says for call in (*DELTA, *ICEBERG)]
    assert set(json.loads(KEPT.read_text())) == {call.says for call in DELTA}
    assert len(lines) == 72
    assert all(line[2] == "equal" or line[3].strip(" |") for line in lines)
    assert sum(line[2] == "equal" for line in lines) >= 60


@pytest.mark.long
def test_the_table_of_the_docs_is_what_the_calls_leave(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    made = page(list(judge(json.loads(KEPT.read_text()))))
    assert put(PAGE.read_text(), made) == PAGE.read_text()
