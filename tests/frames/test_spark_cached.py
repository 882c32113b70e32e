"""What a commit asks Spark's Java about frames that are cached; the rest is in tests/spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import SparkSession

from safewrite.frames.spark.cached import read_anew


@dataclass
class Java:
    """A default session with relations that it caches; ``words`` are all that it was asked."""

    relations: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        def asked(*given: Any) -> Any:
            self.words.append(f"{name} {given[-1]}" if given else name)
            return not self.relations if name == "isEmpty" else self

        return self if name == "SparkSession" else asked


class Context:
    def __init__(self, java: Java) -> None:
        self._jvm = java


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "_instantiatedSession", object())
    monkeypatch.setattr("safewrite.frames.spark.cached._relations", lambda java: iter(java.relations))


def test_a_commit_asks_one_word_while_nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was eight for each table of a batch."""
    java = Java()
    context: Any = Context(java)
    assert read_anew(context, lambda _: True) == 0
    java.words.clear()
    assert read_anew(context, lambda _: True) == 0
    assert java.words == ["isEmpty"]
    monkeypatch.setattr(SparkSession, "_instantiatedSession", object())
    assert read_anew(context, lambda _: True) == 0
    assert "getDefaultSession" in java.words, "another session may cache elsewhere"
    java.relations += ["this", "other"]
    java.words.clear()
    assert read_anew(context, lambda relation: relation == "this") == 1
    assert java.words == ["isEmpty", "recacheByPlan this"]


def test_without_a_session_of_pyspark_s_own_the_default_is_asked_for_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    java = Java()
    context: Any = Context(java)
    for _ in range(2):
        assert read_anew(context, lambda _: True) == 0
    assert java.words.count("getDefaultSession") == 2
