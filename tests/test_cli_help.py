"""Help and the tab key answer at once: they load none of the libraries that the commands work with."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyarrow", "numpy", "rich", "boto3", "pandas")
SCRIPT = f"""
import os, sys
from safewrite.cli import main

def call(words, **environment):
    sys.argv = ["safewrite", *words]
    os.environ.update(environment)
    try:
        main()
    except SystemExit:
        pass

for words in ([], ["doctor"], ["repair"], ["locks"], ["locks", "watch"], ["medallion"], ["cdc"]):
    call([*words, "--help"])
for typed, at in (("safewrite do", "1"), ("safewrite locks wa", "2"), ("safewrite doctor --lam", "2")):
    print("TAB")
    call([], _SAFEWRITE_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=at)
print("LOADED", [name for name in {HEAVY!r} if name in sys.modules])
"""


def test_t3_d9_help_and_the_tab_key_load_nothing_that_they_do_not_need() -> None:
    """T3-D9: ``--help`` imported pyarrow (0.67 s of CPU), and the tab key completed nothing."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    helps, *tabs = done.stdout.split("TAB\n")
    for shown in ("resolve", "--lambda", "--rescue", "check", "--older-than", "replay", "status"):
        assert shown in helps
    assert [tab.split("\n")[0] for tab in tabs] == ["doctor", "watch", "--lambda"]
    assert "LOADED []" in done.stdout


def test_t3_d9_the_package_still_has_what_is_loaded_late() -> None:
    script = (
        "import sys, safewrite as sw\n"
        "assert 'pyarrow' not in sys.modules and {'Table', 'create', 'open'} <= set(dir(sw))\n"
        "from safewrite import *\n"
        "from safewrite import Table as T, create as c, open as o\n"
        "assert (sw.Table, sw.create, sw.open) == (T, c, o) and Table is T and create is c\n"
        "try:\n    sw.nothing\nexcept AttributeError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "module 'safewrite' has no attribute 'nothing'\n"
