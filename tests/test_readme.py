"""The first example of the README runs as written and prints what its comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

README = Path(__file__).parent.parent / "README.md"


def test_the_first_example_runs_and_the_repeat_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(blocks[0], "README.md", "exec"), names)
    first, second = capsys.readouterr().out.splitlines()
    assert (first, second) == ("committed 0 2", "already_committed 0")
    assert pq.read_table(tmp_path / "lake" / "orders").num_rows == 2
