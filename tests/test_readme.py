"""The README's first example runs as written and prints what its comments say; its install lines are enough, and safe."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from safewrite.errors import MissingExtraError

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


ROOT = README.parent
TEXTS = sorted([
    README, *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), *(ROOT / "examples").rglob("Dockerfile"),
    *(ROOT / "examples").rglob("*.yaml"), *(ROOT / "safewrite").rglob("*.py"), *(ROOT / "bench").rglob("*.py"),
])  # fmt: skip


def test_t3_d8_nobody_is_told_to_take_safewrite_from_an_index() -> None:
    """T3-D8: nobody has published safewrite-lake, so what an index has under that name is somebody else's."""
    wrong = []
    for path in TEXTS:
        for line in re.findall(r"^.*\bpip (?:install|wheel|download)\b.*$", path.read_text(), re.MULTILINE):
            by_name = re.search(
                r"[\"' ]safewrite(-lake)?(\[|[\"' ]|$)", line.partition("#")[0].split("pip ", 1)[1]
            )
            if (by_name or "--find-links" in line) and "--no-index" not in line:
                wrong.append(f"{path.relative_to(ROOT)}: {line.strip()}")
    assert wrong == []


def test_t3_d8_the_tutorial_runs_after_the_install_lines_of_the_readme() -> None:
    """T3-D8: it stopped at its first import of pandas."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    install = README.read_text().partition("## Install")[2].partition("\n## ")[0]
    extras = re.findall(r'pip install "\.\[([\w,]+)\]"', install)
    assert extras
    wanted = [
        *project["dependencies"],
        *(one for name in extras[0].split(",") for one in project["optional-dependencies"][name]),
    ]
    wanted += re.findall(
        r"[\w.<>=,-]+", " ".join(re.findall(r"^pip install (pandas[^#\n]*)", install, re.MULTILINE))
    )
    installed = {re.split(r"[<>=\[]", one)[0] for one in wanted} | {"safewrite"}
    blocks = re.findall(r"<!-- run -->\n```python\n(.*?)```", tutorial, re.DOTALL)
    imported = {
        name for block in blocks for name in re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE)
    }
    assert {"pandas", "polars", "deltalake"} <= imported <= installed
    (told,) = re.findall(r"`pip install (.*?)`", tutorial)
    assert {"pandas", "polars"} <= set(told.split())


def test_t3_d8_a_missing_package_is_named_as_an_index_has_it() -> None:
    for extra, package in (("iceberg", "pyiceberg"), ("lambda", "aws-lambda-powertools"), ("cli", "typer")):
        command = MissingExtraError.command(extra)
        assert command.startswith("pip install '")
        assert package in command
        assert "safewrite" not in command


def test_t3_d8_without_its_metadata_the_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer or a checkout on the path has no metadata."""

    def none(_: str) -> None:
        raise PackageNotFoundError("safewrite-lake")

    monkeypatch.setattr(importlib.metadata, "requires", none)
    assert "'WHEEL[lambda]', where WHEEL is the file safewrite_lake-" in MissingExtraError.command("lambda")
