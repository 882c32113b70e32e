"""Tests that a local folder lists as an object store does: by prefix, in order, from any name on."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.protocol.effects import Ok, Unknown
from safewrite.stores.local import LocalObjects
from tests.sampling import no_more_than

NAMES = st.text("a/0-.Ä", min_size=1, max_size=6).filter(
    lambda path: all(part.strip(".") for part in path.split("/"))
)
PATHS = st.sets(NAMES, max_size=8).map(
    lambda paths: {path for path in paths if not any(other.startswith(f"{path}/") for other in paths)}
)


def listed(folder: Path, prefix: str = "", start_after: str = "", limit: int = 0) -> list[str]:
    outcome = LocalObjects(folder).list(prefix, start_after, limit)
    assert isinstance(outcome, Ok), outcome
    return [one.path for one in outcome.value]  # type: ignore[attr-defined]


def write(folder: Path, paths: set[str]) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(path.encode())


@no_more_than(150)
@given(st.data())
def test_a_folder_lists_what_follows_a_name_in_the_order_of_names(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder, paths = tmp_path_factory.mktemp("table"), data.draw(PATHS)
    write(folder, paths)
    beginnings = sorted({path[:length] for path in paths for length in range(len(path))} | {""})
    prefix = data.draw(st.sampled_from(beginnings))
    start_after = data.draw(st.sampled_from([*beginnings, *sorted(paths)]) | st.text("a/0-.", max_size=4))
    limit = data.draw(st.integers(0, 3))
    told = sorted(path for path in paths if path.startswith(prefix) and path > start_after)
    assert listed(folder, prefix, start_after, limit) == (told[:limit] if limit else told)


def test_a_listing_opens_no_folder_whose_names_all_come_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {f"log/{version:02}.json" for version in range(20)} | {"log/old/1", "data/a/b"})
    opened: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: opened.append(Path(path).name) or scandir(path))
    assert listed(tmp_path, "log/", "log/18.json") == ["log/19.json", "log/old/1"]
    assert opened == ["log", "old"]
    opened.clear()
    assert listed(tmp_path, "log/", "log/p") == []
    assert listed(tmp_path, "log/1", "log/18.json") == ["log/19.json"]
    assert opened == ["log", "log"]


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"log/1", "log/old/1"})
    assert listed(tmp_path, "nothing/") == []
    assert isinstance(LocalObjects(tmp_path).list("log/1/", "", 0), Unknown)
    scandir = os.scandir

    def refused(path: str) -> object:
        if Path(path).name == "old":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    outcome = LocalObjects(tmp_path).list("log/", "", 0)
    assert isinstance(outcome, Unknown)
    assert outcome.advice == "Allow this user to read the table's folder."


def test_a_listing_passes_over_links_to_folders_and_over_links_to_nothing(tmp_path: Path) -> None:
    write(tmp_path / "table", {"a/1"})
    write(tmp_path / "elsewhere", {"1"})
    (tmp_path / "table" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "table" / "c").symlink_to(tmp_path / "elsewhere" / "1")
    (tmp_path / "table" / "d").symlink_to(tmp_path / "nothing")
    assert listed(tmp_path / "table") == ["a/1", "c"]
