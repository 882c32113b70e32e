"""Distinguishes the contents that a file of a full load has had: one that comes back later is new."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.rows import loaded_ms


class Content(NamedTuple):
    """Under which epoch a content was landed, and when its file was written, in ms since 1970."""

    epoch: int
    changed_ms: int


Contents = dict[str, Content]
"""The contents of one file that bronze has rows of, by their tags."""
_CAME_BACK = re.compile(r"@\d+$")


def content_of(tag: str) -> str:
    """What names the content itself in the tag of one that came back."""
    return _CAME_BACK.sub("", tag)


def last_of(content: str, known: Mapping[str, Content]) -> str | None:
    """The tag under which a content was landed last; None if it never was."""
    same = [tag for tag in known if content_of(tag) == content]
    return max(same, key=known.__getitem__) if same else None


def tag_of(source: SourceFile, content: str, known: Mapping[str, Content], epoch: int) -> str:
    """The tag under which a file's rows stand in bronze, or are to be put there.

    A full load that began again may have a content that an earlier one had, with another between the two; and that of a new
    task has the content of the last one where nothing changed in the source.  Its rows are the newest all the same.  Such a
    content is named by the time of its file too, so that each run names it alike.
    """
    last = last_of(content, known)
    if last is None or not source.is_load:
        return content
    came, now = known[last], Content(epoch, source.raw.changed_ms)
    is_newer = now > came and now.changed_ms > came.changed_ms
    is_past = came < max(known.values()) < now or came.epoch < epoch
    return f"{content}@{now.changed_ms}" if is_newer and is_past else last


def contents(rows: pa.Table) -> dict[str, Contents]:
    """Of each path the contents that some rows of bronze are of; takes ``_file``, ``_tag``, ``_epoch`` and ``_seq``."""
    found: dict[str, Contents] = {}
    ends = rows.group_by(["_file", "_tag"]).aggregate([("_epoch", "max"), ("_seq", "max")])
    for one in ends.to_pylist():
        landed = Content(one["_epoch_max"], loaded_ms(one["_seq_max"]))
        found.setdefault(one["_file"], {})[one["_tag"]] = landed
    return found
