"""Runs one command line after another, each in a fork of a process that has loaded the libraries; in a pipe or on two terminals.

``python -m tests.cli.zygote`` takes a case a line on standard input, in JSON, and answers with a line; with ``whole`` it has loaded
what extras bring too, so that none of it can be missing.  A fork takes some
milliseconds where a new process takes a second, and what a case does to its process or its folder is gone with the next.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import importlib
import importlib.abc
import json
import os
import pty
import selectors
import shutil
import signal
import struct
import sys
import termios
import time
import tty
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLUMNS = 80
SECONDS_MAX = 60
BASE = ("safewrite.cli.app", "safewrite.tables", "safewrite.delta.maintenance.doctor", "safewrite.delta.maintenance.repair", "pyarrow.parquet", "boto3",
        "pydantic")  # fmt: skip
MORE = ("safewrite.cli.grid", "deltalake", "pyiceberg.catalog.sql", "pyiceberg.table", "safewrite.iceberg.table", "pydantic", "sqlglot", "safewrite.cdc.config",
        "safewrite.cdc.landing.job_plan", "safewrite.medallion.pipeline")  # fmt: skip
"""What commands load that the base does not bring; loaded before cases in which nothing is missing."""


class Missing(importlib.abc.MetaPathFinder):
    """Finds none of these packages."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.partition(".")[0] in self.names or fullname in self.names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def prepare(case: dict[str, Any]) -> None:
    """Put the world where it was, and do to it what the case says."""
    place = Path(case["world"])
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(case["template"], place)
    for name, content in case["files"].items():
        path = place / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if content == "folder":
            path.mkdir()
        elif content == "loop":
            path.symlink_to(path.name)
        elif content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))


def act(case: dict[str, Any], out: int, err: int) -> None:
    """Be the command line, in this process, which ends."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(case["world"])
    os.environ.clear()
    os.environ.update(case["env"])
    sys.meta_path.insert(0, Missing(case["missing"]))
    sys.argv = ["safewrite", *case["words"]]
    code = 70
    try:
        from safewrite.cli import main

        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - a command line that ends in a traceback is what is looked for
        sys.excepthook(*sys.exc_info())
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def terminal() -> tuple[int, int]:
    """The two ends of a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    return ours, theirs


def play(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case to its end, and say what it printed where."""
    prepare(case)
    began = time.monotonic()
    pairs = [terminal() if case["terminal"] else os.pipe() for _ in range(2)]
    child = os.fork()
    if not child:
        act(case, pairs[0][1], pairs[1][1])
    texts: dict[int, bytes] = {}
    with selectors.DefaultSelector() as waiting:
        for ours, theirs in pairs:
            os.close(theirs)
            texts[ours] = b""
            waiting.register(ours, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(max(0.0, began + SECONDS_MAX - time.monotonic()))
            if not ready:
                os.killpg(child, signal.SIGKILL)
                break
            for key, _ in ready:
                try:
                    part = os.read(key.fd, 65536)
                except OSError:  # a terminal that its other end left
                    part = b""
                texts[key.fd] += part
                if not part:
                    waiting.unregister(key.fd)
    _, status = os.waitpid(child, 0)
    out, err = (texts[ours].decode(errors="replace") for ours, _ in pairs)
    for ours, _ in pairs:
        os.close(ours)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it started
    return {
        "code": os.waitstatus_to_exitcode(status),
        "out": out,
        "err": err,
        "seconds": time.monotonic() - began,
    }


def main() -> None:
    for name in (*BASE, *(MORE if "whole" in sys.argv else ())):
        with contextlib.suppress(ImportError):  # an earlier version of the code may lack a room
            importlib.import_module(name)
    for line in sys.stdin:
        sys.__stdout__.write(json.dumps(play(json.loads(line))) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
