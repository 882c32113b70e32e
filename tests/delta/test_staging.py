"""A data file is read back before its commit, unless its upload has just shown that the store holds its bytes (B1, G5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.manifest import FileFormat

from safewrite.delta.write.staging import secure, stage
from safewrite.errors import Kind, StorageError
from safewrite.iceberg.write.staging import Staging
from safewrite.protocol import staging
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import (
    PROVED,
    Effect,
    Failed,
    GetTail,
    Missing,
    Now,
    Ok,
    Outcome,
    Put,
    Sleep,
    Together,
)
from safewrite.protocol.values import Tail
from safewrite.stores.world import run

LIMITS = Limits(asks=2, recheck_s=60.0)
BODY = b"PAR1" + b"rows" * 10 + (20).to_bytes(4, "little") + b"PAR1"


@dataclass
class Shelf:
    """Keeps files; ``proves`` is what its answer to an upload shows, ``answer`` may act first or answer itself."""

    proves: bool = True
    answer: Callable[[Effect], Outcome | None] = lambda effect: None
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)
    now_s: float = 0.0

    def perform(self, effect: Effect) -> Outcome:
        if isinstance(effect, Now):
            return Ok(self.now_s)
        parts = effect.effects if isinstance(effect, Together) else (effect,)
        self.asked.append([f"{type(part).__name__} {getattr(part, 'path', '')}" for part in parts])
        outcomes = tuple(self.answer(part) or self._answer(part) for part in parts)
        return Ok(outcomes) if isinstance(effect, Together) else outcomes[0]

    def _answer(self, effect: Effect) -> Outcome:
        match effect:
            case Put(path, body):
                self.files[path] = body
                return Ok(PROVED if self.proves else None)
            case GetTail(path, length):
                body = self.files.get(path)
                return Missing() if body is None else Ok(Tail(len(body), body[-length:]))
            case Sleep():
                return Ok()
        raise AssertionError(effect)


def files(*names: str) -> list[Any]:
    return [
        SimpleNamespace(
            path=name, body=BODY, size=len(BODY), rows=1, add_action=lambda ms: {"add": {}},
            data_file=SimpleNamespace(file_size_in_bytes=len(BODY), file_format=FileFormat.PARQUET),
        )
        for name in names
    ]  # fmt: skip


def by_delta(shelf: Shelf, names: Sequence[str], again_s: float | None = None) -> None:
    """Stage files and secure them before a commit; and again so much later."""
    staged = run(stage(files(*names), 1, LIMITS, leaves_last=True), shelf)
    assert [file.mark.path for file in staged] == list(names)
    staged = run(secure(staged, LIMITS), shelf)
    assert all(file.put is None for file in staged)
    if again_s is not None:
        run(secure(staged, LIMITS), shelf)


def by_iceberg(shelf: Shelf, names: Sequence[str], again_s: float | None = None) -> None:
    plan = Staging(LIMITS)
    run(plan.upload(files(*names)), shelf)
    assert len(plan.data_files) == len(names)
    run(plan.complete(()), shelf)
    if again_s is not None:
        shelf.now_s += again_s
        run(plan.complete(()), shelf)


FORMATS = pytest.mark.parametrize("write", [by_delta, by_iceberg], ids=["delta", "iceberg"])


@FORMATS
def test_an_upload_that_proves_its_bytes_is_the_check(write: Callable[..., None]) -> None:
    shelf = Shelf()
    write(shelf, ["a", "b"])
    assert shelf.asked == [["Put a", "Put b"]]


@FORMATS
def test_an_upload_that_proves_nothing_is_read_back(write: Callable[..., None]) -> None:
    """An encrypted object's ETag is not its MD5; a local disk says nothing of what it wrote."""
    shelf = Shelf(proves=False)
    write(shelf, ["a", "b"])
    assert shelf.asked == [["Put a", "Put b"], ["GetTail a", "GetTail b"]]


@FORMATS
@pytest.mark.parametrize("damage", ["removed", "truncated"])
def test_what_was_damaged_after_an_upload_that_proves_nothing_is_noticed(
    write: Callable[..., None], damage: str
) -> None:
    shelf = Shelf(proves=False)

    def clean_up(effect: Effect) -> None:
        if isinstance(effect, GetTail):
            shelf.files = {} if damage == "removed" else dict.fromkeys(shelf.files, BODY[4:])

    shelf.answer = clean_up
    with pytest.raises(StorageError) as told:
        write(shelf, ["a"])
    assert told.value.kind is Kind.DATA_FILE_DAMAGED


@FORMATS
@pytest.mark.parametrize("proves", [True, False])
def test_files_of_windows_before_the_last_are_read_back(write: Callable[..., None], proves: bool) -> None:
    """They were uploaded while others were still made, which may have taken long."""
    names = [f"f{number}" for number in range(staging.WINDOW_FILES + 1)]
    early, last = names[:-1], names[-1]
    shelf = Shelf(proves)
    write(shelf, names)
    assert shelf.asked[0] == [f"Put {name}" for name in early]
    assert sorted(shelf.asked[1]) == sorted([f"Put {last}", *(f"GetTail {name}" for name in early)])
    assert shelf.asked[2:] == ([] if proves else [[f"GetTail {last}"]])
    shelf = Shelf(proves, lambda effect: Missing() if effect == GetTail("f3", 28, name=effect.name) else None)
    with pytest.raises(StorageError) as told:
        write(shelf, names)
    assert told.value.kind is Kind.DATA_FILE_DAMAGED


@FORMATS
def test_a_file_that_vanished_while_a_commit_was_tried_for_long_is_noticed(
    write: Callable[..., None],
) -> None:
    shelf = Shelf()
    write(shelf, ["a"], again_s=61.0)
    assert shelf.asked == [["Put a"], ["GetTail a"]]
    shelf = Shelf(answer=lambda effect: Missing() if isinstance(effect, GetTail) else None)
    with pytest.raises(StorageError) as told:
        write(shelf, ["a"], again_s=61.0)
    assert told.value.kind is Kind.DATA_FILE_DAMAGED


@FORMATS
def test_an_upload_that_fails_is_an_error(write: Callable[..., None]) -> None:
    shelf = Shelf(answer=lambda effect: Failed("no") if isinstance(effect, Put) else None)
    with pytest.raises(StorageError, match="Nothing was committed"):
        write(shelf, ["a"])


def test_a_file_that_was_secured_is_not_uploaded_again() -> None:
    shelf = Shelf()
    (file,) = run(stage(files("a"), 1, LIMITS, leaves_last=True), shelf)
    assert (file.put is not None, shelf.asked) == (True, [])
    (done,) = run(secure([file], LIMITS), shelf)
    run(secure([done], LIMITS), shelf)
    assert shelf.asked == [["Put a"], ["GetTail a"]]
