"""Help and the tab key answer at once: they load none of the libraries that the commands work with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.cli.app import command_of

HEAVY = ("pyarrow", "numpy", "rich", "boto3", "pandas")
HELP = """
import os, sys
from safewrite.cli import main

def call(words, **environment):
    sys.argv = ["safewrite", *words]
    os.environ.update(environment)
    try:
        main()
    except SystemExit as ended:
        return ended.code

def every(command, words):
    yield words
    for name, one in getattr(command, "commands", {}).items():
        yield from every(one, [*words, name])
"""
ALL = (
    HELP
    + f"""
from typer.main import get_command
from safewrite.cli.app import app

for words in every(get_command(app), []):
    print("HELP of", *words)
    call([*words, "--help"])
print("HELP of locks watch, options before it")
call(["--output", "json", "locks", "watch", "--help"])
print("LOADED", [name for name in {(*HEAVY, "pydantic")!r} if name in sys.modules])
"""
)
TAB = (
    HELP
    + f"""
for shell, typed, at in SHELLS:
    print("TAB")
    call([], _SAFEWRITE_COMPLETE="complete_" + shell, COMP_WORDS=typed, COMP_CWORD=at, _TYPER_COMPLETE_ARGS=typed)
print("LOADED", [name for name in {HEAVY!r} if name in sys.modules])
"""
)


def out_of(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_t3_d9_help_of_every_command_loads_nothing_that_it_does_not_need() -> None:
    """T3-D9: ``--help`` imported pyarrow (0.67 s of CPU); that of commands still took 0.2 s for pydantic."""
    _, *helps = out_of(ALL).split("HELP of")
    shown = {text.partition("\n")[0].strip(): text.partition("\n")[2] for text in helps}
    assert len(shown) > 25
    for words, text in shown.items():
        command = words.partition(",")[0]
        assert text.startswith(f"Usage: safewrite {command} ".replace("  ", " ")), words
    for words, option in (("doctor", "--lambda"), ("stress", "--seed"), ("cdc run", "--jars")):
        assert option in shown[words]
    assert "LOADED []" in helps[-1]


def test_the_package_is_the_command_too() -> None:
    """``python -m safewrite``, where a job's environment has no ``safewrite`` on its path."""
    done = subprocess.run(
        [sys.executable, "-m", "safewrite", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"safewrite {sw.__version__}\n"


@pytest.mark.sweep("words1", "words2")
@pytest.mark.parametrize(
    ("words", "ended", "said"),
    [
        (["nothing", "--help"], 2, "No such command 'nothing'"),
        (["--output", "json", "locks", "nothing", "--help"], 2, "No such command 'nothing'"),
        (["--help", "doctor"], 0, "Usage: safewrite [OPTIONS] COMMAND"),
    ],
)
def test_help_of_a_command_that_is_not_there(words: list[str], ended: int, said: str) -> None:
    script = f"import sys; sys.argv = ['safewrite', *{words!r}]\nfrom safewrite.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout + done.stderr) == (ended, True)


def test_t3_d9_the_tab_key_loads_nothing_that_it_does_not_need() -> None:
    """T3-D9: the tab key completed nothing."""
    typed = [
        ("safewrite do", "1", "doctor"),
        ("safewrite locks wa", "2", "watch"),
        ("safewrite doctor --lam", "2", "--lambda"),
    ]
    shells = [(shell, words, at) for shell in ("bash", "zsh") for words, at, _ in typed]
    _, *tabs = out_of(TAB.replace("SHELLS", repr(shells))).split("TAB\n")
    wanted = [word for _, _, word in typed]
    assert [tab.split("\n")[0] for tab in tabs[:3]] == wanted
    assert all(f'"{word}"' in tab for word, tab in zip(wanted, tabs[3:], strict=True))
    assert "LOADED []" in tabs[-1].replace("'rich'", "")  # typer renders descriptions for zsh with it


def test_t3_d9_the_package_still_has_what_is_loaded_late() -> None:
    script = (
        "import sys, safewrite as sw\n"
        "assert 'pyarrow' not in sys.modules and {'Table', 'create', 'open'} <= set(dir(sw))\n"
        "from safewrite import *\n"
        "from safewrite import Table as T, create as c, open as o\n"
        "assert (sw.Table, sw.create, sw.open) == (T, c, o) and Table is T and create is c\n"
        "try:\n    sw.nothing\nexcept AttributeError as error:\n    print(error)"
    )
    assert out_of(script) == "module 'safewrite' has no attribute 'nothing'\n"


MAINTAIN = """
import sys
from safewrite.cli import main

sys.argv = ["safewrite", "maintain", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    assert not ended.code
print(*(name for name in ("pandas", "pyarrow.pandas_compat") if name in sys.modules))
import pandas as pd, pyarrow as pa  # what a user's catalog may do still
assert pa.Table.from_pandas(pd.DataFrame({"id": [1]})).num_rows == 1
"""


def test_a_command_is_known_by_its_place() -> None:
    """A table or a job may be called as a command is; an option before the command has a value."""
    named = [
        ("maintain", ["maintain", "verify"]),
        ("verify", ["verify", "changes"]),
        ("doctor", ["--output", "json", "doctor", "maintain"]),
        ("cdc", ["--output=json", "--log-level", "debug", "cdc", "run"]),
        (None, ["--output", "maintain"]),
        (None, []),
    ]
    for command, words in named:
        assert command_of(words) == command, words


def test_only_a_command_that_takes_no_pandas_goes_without() -> None:
    script = (
        "import sys\nfrom safewrite.cli.app import spare_pandas\nimport pyarrow as pa\n"
        "spare_pandas(['verify', 'changes'])\npa.array([])\nprint('pandas' in sys.modules)"
    )
    assert out_of(script) == "True\n"


def test_upkeep_from_the_command_line_imports_no_pandas(tmp_path: Path) -> None:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/lake",
    }
    delta = sw.open(str(tmp_path / "delta"), create=True)
    iceberg = sw.create("shop.orders", pa.schema({"id": pa.int64()}), catalog=catalog, create_namespace=True)
    for number in range(12):
        delta.append([{"id": number}])
        iceberg.append([{"id": number}])
    properties = [
        word for name, value in catalog.items() for word in ("--catalog-property", f"{name}={value}")
    ]
    for words in ([delta.uri], ["shop.orders", *properties]):
        ran = subprocess.run(
            [sys.executable, "-c", MAINTAIN, *words], capture_output=True, text=True, check=True
        )
        report, imported = ran.stdout.splitlines()
        assert "became 1 file" in report
        assert imported == ""
