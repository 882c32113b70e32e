"""Snippets of README and docs: all of them compile, and those that need only a local folder run as written.

A line ``<!-- run -->`` above a block says that it runs; the blocks of a page run in order, in one folder.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.each import each

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^(<!-- run -->\n)?```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
MUST_RUN = {
    "index.md", "tutorial.md", "delta.md", "iceberg.md", "lambda.md", "other-engines.md", "errors.md",
    "load-times.md", "maintain.md", "operations.md", "wrangler.md", "apply-changes.md", "positions.md", "cdc/index.md", "medallion/index.md",
    "reading-back.md",
}  # fmt: skip


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs")) if page.is_relative_to(ROOT / "docs") else page.name


def blocks(page: Path, *, run: bool) -> list[str]:
    return [code for mark, code in BLOCK.findall(page.read_text()) if mark or not run]


RUNNING = [page for page in PAGES if blocks(page, run=True)]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORDERS", "./orders")
    log = logging.getLogger("safewrite")
    handlers, level = list(log.handlers), log.level
    yield
    log.handlers[:] = handlers
    log.setLevel(level)


def test_every_page_that_can_run_on_a_local_folder_does() -> None:
    assert {name_of(page) for page in RUNNING} == MUST_RUN


@each("page", PAGES, ids=name_of)
def test_every_python_block_compiles(page: Path) -> None:
    text = page.read_text()
    assert text.count("```python") == len(blocks(page, run=False))
    assert text.count("<!-- run -->") == len(blocks(page, run=True))
    for code in blocks(page, run=False):
        compile(code, page.name, "exec")


@pytest.mark.parametrize("page", RUNNING, ids=name_of)
def test_the_blocks_of_a_page_run_as_written(page: Path) -> None:
    names: dict[str, object] = {"__name__": page.stem}
    for code in blocks(page, run=True):
        exec(compile(code, page.name, "exec"), names)
