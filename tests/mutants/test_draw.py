"""Mutants that a machine draws: which changes there are, and what becomes of them."""

from __future__ import annotations

import random

import pytest

from tests.mutants import draw
from tests.mutants.draw import Drawn, drawable, equivalent, noticed_by
from tests.mutants.killers import ROOT, Killer, Warm
from tests.mutants.operators import changes

KEYS = Killer("pytest", ("-q", "-x", "-p", "no:cacheprovider", "--noconftest", "tests/protocol/test_keys.py"))


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a < b\n", {"pass", "(a <= b)\n"}),
        ("x = a and b\n", {"x = (a or b)\n", "x = (a)\n", "x = (b)\n"}),
        ("x = not a\n", {"x = (a)\n"}),
        ("if a:\n    b()\n", {"if True:\n    b()\n", "if False:\n    b()\n", "if a:\n    pass\n"}),
        ("while a: pass\n", {"while False: pass\n"}),
        ("x = a if b else c\n", {"x = (a)\n", "x = (c)\n"}),
        ("x = a + 1\n", {"x = (a - 1)\n", "x = a + 2\n"}),
        ("x = isinstance(y, A | B)\n", {"x = isinstance(y, (A))\n", "x = isinstance(y, (B))\n"}),
        ("x = [a for a in b if a.c]\n", {"x = [a for a in b if True]\n"}),
        ("def f():\n    yield from g()\n", {"def f():\n    pass\n"}),
        (
            "def f():\n    return 'é' + g(True)\n",
            {"def f():\n    return None\n", "def f():\n    return 'é' + g(False)\n"},
        ),
        ("a.b = c\n", {"pass\n"}),
        ("raise E(1)\n", {"pass\n"}),
        ("'''A docstring, 1 < 2.'''\nassert a < b\nx: int\nx = f'{1}'\n", set()),
        ("x = zip(a, b, strict=True)\n", set()),
    ],
)
def test_each_place_of_a_module_is_changed_by_itself(source: str, changed: set[str]) -> None:
    found = {change.text for change in changes(source)}
    assert {text.rstrip("\n") for text in found} == {text.rstrip("\n") for text in changed}


def test_a_change_tells_its_line_and_both_texts() -> None:
    [change] = changes("x = 'é'; y = a.f(\n    b == c)  # why\n")
    assert (change.line, change.at, str(change)) == (2, "b == c)  # why", "b == c -> (b != c)")


def test_every_change_is_a_program() -> None:
    for change in changes((ROOT / "safewrite" / "protocol" / "ask.py").read_text()):
        compile(change.text, "changed", "exec")


def test_every_change_that_is_listed_as_equivalent_can_be_drawn() -> None:
    known = equivalent().keys()
    listed = {drawn.listed for drawn in drawable({one.partition(":")[0] for one in known})}
    assert sorted(known - listed) == []


def test_every_part_is_there_and_mutants_are_drawn_of_it() -> None:
    for part, _ in draw.PARTS:
        assert list((ROOT / "safewrite").glob(part if part.endswith(".py") else f"{part}/**/*.py")), part
    assert len(list(drawable(["protocol/keys.py"]))) > 50


@pytest.mark.long
def test_drawn_mutants_of_the_keys_are_noticed_and_what_notices_them_is_told() -> None:
    known = equivalent()
    every = [drawn for drawn in drawable(["protocol/keys.py"]) if drawn.listed not in known]
    with Warm() as warm:
        for drawn in random.Random(1).sample(every, 5):
            run = warm.run([KEYS], {str(ROOT / "safewrite" / drawn.file): drawn.change.text})
            one = Drawn(drawn.file, drawn.change, (KEYS,))
            assert noticed_by(one, run).startswith("test_keys.py"), f"{one}\n{run.printed}"
        assert warm.run([KEYS]).code == 0
