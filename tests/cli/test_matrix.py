"""Every command with one thing wrong at a time, on a terminal of 80 columns, in a pipe and as JSON.

A command that fails says so in one place: an error with its kind, what is safe and what to do.  No traceback comes out, nothing that
this code did not foresee, and no name is broken.  A short form of the product is in the default suite; all of it is ``long``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from safewrite.errors import Kind
from tests.cli.commands import MAKERS, Case, Denied, Maker, build, cases, commands, sample
from tests.cli.zygote import COLUMNS

ERROR = re.compile(r"^\w+Error \((\w+)\):.*", re.MULTILINE)
USAGE = re.compile(r"^Error: .+", re.MULTILINE)
NOT_JSON = {"stress", "cdc schema", "medallion schema", "dashboard"}
"""Commands that print a document of their own, or hand over."""
NOTES = {"0", "or", "empty", "in", "every", "row:", "What", "is", "left", "out."}


class Stage:
    """The world, a server that denies all, and the processes that commands are forks of."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.world, self.template = folder / "world", folder / "template"
        self.world.mkdir()
        build(self.world)
        shutil.copytree(self.world, self.template)
        server = ThreadingHTTPServer(("127.0.0.1", 0), Denied)
        server.daemon_threads = True
        stack.callback(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        self.denied = f"http://127.0.0.1:{server.server_port}"
        self._stack = stack
        self._zygotes: dict[str, subprocess.Popen[str]] = {}

    def play(self, case: Case) -> dict[str, Any]:
        case.env = {name: value.replace("DENIED", self.denied) for name, value in case.env.items()}
        zygote = self._zygote("base" if case.missing else "whole")
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        zygote.stdin.write(json.dumps(case.to_dict(self.world, self.template)) + "\n")
        zygote.stdin.flush()
        answer: dict[str, Any] = json.loads(zygote.stdout.readline())
        return answer

    def _zygote(self, kind: str) -> subprocess.Popen[str]:
        if kind not in self._zygotes:
            command = [sys.executable, "-W", "ignore", "-m", "tests.cli.zygote", kind]
            zygote = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._zygotes[kind] = zygote
            self._stack.enter_context(zygote)
        return self._zygotes[kind]

    def faults(self, listed: Sequence[Case]) -> list[str]:
        """What is wrong with how each case ends."""
        found = []
        for case in listed:
            answer = self.play(case)
            wide = None
            if case.form == "terminal":
                wide = self.play(Case(**{**case.__dict__, "form": "pipe"}))
            found += [f"{case}: {fault}" for fault in faults_of(case, answer, wide)]
        return found


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path_factory.mktemp("commands"), stack)


def faults_of(case: Case, answer: dict[str, Any], wide: dict[str, Any] | None) -> Iterator[str]:
    out, err, code = visible(answer["out"]), visible(answer["err"]), answer["code"]
    last = (err or out).strip().splitlines()[-1:]
    if "Traceback" in out + err or "(internal)" in err or '"internal"' in out:
        yield f"something that no command foresaw: {last}"
    if code not in {0, 1, 2}:
        yield f"it ended with {code}: {last}"
    if case.must_fail and not code:
        yield f"it ended with 0: {last}"
    if case.form == "json":
        if case.command.name not in NOT_JSON or (code and case.command.name != "stress"):
            yield from faults_of_json(out, code)
    elif code:
        yield from faults_of_text(out, err)
    if wide is not None:
        yield from broken(out, visible(wide["out"]))
        if code:
            yield from broken(err, visible(wide["err"]))


def faults_of_json(out: str, code: int) -> Iterator[str]:
    try:
        document = json.loads(out)
    except ValueError:
        yield f"its answer is no JSON: {out[:200]!r}"
        return
    if code == 2 and "error" not in document:
        yield "its answer has no error"
    if code and "error" in document:
        if document["error"]["kind"] not in {*Kind}:
            yield f"no kind of error: {document['error']}"
        yield from unhelpful(document["error"]["message"])


def faults_of_text(out: str, err: str) -> Iterator[str]:
    told = ERROR.search(err)
    if told is not None:
        yield from unhelpful(err[told.start() :])
    elif USAGE.search(err) is None and not out.strip():
        yield f"it says nothing of why: {err[-200:]!r}"


def unhelpful(message: str) -> Iterator[str]:
    """An error says what happened, and then what is safe or what to do."""
    if not re.search(r"[.:)]\s+\S.*", message, re.DOTALL):
        yield f"no word of what to do: {message!r}"


def visible(text: str) -> str:
    """Without what moves the cursor and colours, and without bars of progress."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n")
    return "\n".join(
        line
        for line in plain.split("\n")
        if not re.search("━+ *\\d+/\\d+|━ 0/", line) and "-:--:--" not in line
    )


def broken(narrow: str, wide: str) -> Iterator[str]:
    """Words on 80 columns that are no words in a pipe, and lines that the terminal breaks."""
    strange = words(narrow) - words(wide) - NOTES
    if strange:
        yield f"broken at {COLUMNS} columns: {sorted(strange)[:6]}"
    long = [line for line in narrow.splitlines() if len(line) > COLUMNS and len(line.split()) > 1]
    if long and not narrow.lstrip().startswith(("{", "[")):  # a document is no text
        yield f"wider than {COLUMNS} columns: {long[0]!r}"


def words(text: str) -> set[str]:
    """What is between blanks; what differs from run to run is alike."""
    plain = re.sub("[┏━┳┓┃┡╇┩│└─┴┘╭╮╰╯]", " ", text)
    plain = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "U", plain)
    return {re.sub(r"\d+", "0", word).rstrip(",") for word in plain.split()}


def test_each_command_has_what_it_needs_in_the_world() -> None:
    assert len([command.words() for command in commands()]) > 35


def test_some_of_the_matrix(stage: Stage) -> None:
    """T4: no Java, no extra, no rights, no server, no file: each ended in a traceback somewhere."""
    assert stage.faults(sample()) == []


@pytest.mark.long
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_all_of_the_matrix(stage: Stage, make: Maker) -> None:
    assert stage.faults(cases(make)) == []
