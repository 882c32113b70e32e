"""Cheap checks of the repository's own shape: commands, locks, notes, modules, words that must not appear."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import tomllib
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

import safewrite
from bench.servers.servers import _PACKAGE_OF

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CLASS_LINES_MAX = 400

_DISTRIBUTION_OF = {"opentelemetry": "opentelemetry-api", "google": "protobuf"}

# One letter of each in brackets, so that this file passes its own checks.
INSTALLED = re.compile(
    r"(?:pip ins[t]all|additional-python-module[s])\b[^\n]*?\b(safewrite(?:[-_][a-z]\w*)?)"
)
FORBIDDEN = re.compile(
    r"(?<![\w.])/(?:wor[k]|far[m]|roo[t]|tm[p]|bash_job[s])/"
    r"|https?://\S+/(?:maven[2]|simpl[e])\b"
    r"|pythonhoste[d]|npmj[s]\.org|prox[y]\.golang|repo1\.mave[n]"
)


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in files if path.is_file()]


def tracked_modules() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py"]


def imported_by(*folders: str) -> set[str]:
    """The top-level names that modules of these folders import, wherever in the module."""
    texts = (path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {name for text in texts for name in re.findall(r"^ *(?:from|import) (\w+)", text, re.MULTILINE)}


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):.*## ", MAKEFILE, re.MULTILINE))


def code_in(markdown: str) -> str:
    """All code of a Markdown text: fenced blocks and spans."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL))
    return "\n".join([*fenced, *spans])


def named_make_targets(text: str) -> set[str]:
    commands = re.findall(r"^ *make ((?:[a-z][a-z0-9-]* ?)+)", text, re.MULTILINE)
    return {target for command in commands for target in command.split()}


def can_be_run(name: str) -> bool:
    """Whether `python -m name` finds something to run: a module, or a package with a __main__."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    return spec is not None


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", ".ci/run"])
def test_every_make_command_that_a_text_names_is_a_target(name: str) -> None:
    text = (ROOT / name).read_text()
    named = named_make_targets(code_in(text) if name.endswith(".md") else text)
    assert "test" in named
    assert named <= make_targets()


def test_the_readme_names_the_two_commands() -> None:
    assert {"stress", "test"} <= named_make_targets(code_in((ROOT / "README.md").read_text()))


def test_every_module_that_make_runs_exists() -> None:
    modules = set(re.findall(r"\$\(PY\) -m ([\w.]+)", MAKEFILE))
    assert "pytest" in modules
    assert [name for name in sorted(modules) if not can_be_run(name)] == []


def test_no_tracked_file_names_a_machine_path_or_a_package_index() -> None:
    found = []
    for path in tracked_files():
        text = path.read_text(errors="replace")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in FORBIDDEN.finditer(text)]
    assert found == []


def test_every_install_command_names_this_distribution() -> None:
    """`safewrite` on the package index is another project, with the same import name."""
    name = PROJECT["project"]["name"]
    found = [
        (str(path.relative_to(ROOT)), match[1].replace("_", "-"))
        for path in tracked_files()
        for match in INSTALLED.finditer(path.read_text(errors="replace"))
    ]
    assert len(found) > 3
    assert [(path, named) for path, named in found if named != name] == []
    own = re.findall(r"safewrite[\w-]*(?=\[)", " ".join(PROJECT["project"]["optional-dependencies"]["all"]))
    assert set(own) == {name}


def test_every_module_opens_with_a_sentence() -> None:
    wrong = []
    for path in tracked_modules():
        text = path.read_text()
        opening = re.match(r'(?:#.*\n|\s)*"""(.*?)(?:\n\n|""")', text, re.DOTALL)
        first_line = opening[1].strip() if opening else ""
        empty_marker = path.name == "__init__.py" and not text.strip()
        if not empty_marker and not re.fullmatch(r"\S+ \S+ .*[.:!?]", first_line, re.DOTALL):
            wrong.append(f"{path.relative_to(ROOT)}: {first_line!r}")
    assert wrong == []


Classes = dict[str, tuple[int, set[str]]]


@cache
def classes_in(path: Path) -> Classes:
    """The lines and the bases in the package of each class of a module, by dotted names."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    tree = ast.parse(path.read_text())
    known = {node.name: f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            known |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    found: Classes = {}
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        bases = {ast.unparse(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases}
        named = {base.partition(".") for base in bases}
        resolved = {known.get(first, first) + dot + rest for first, dot, rest in named}
        found[f"{module}.{node.name}"] = (lines_of(node), resolved)
    return found


def lines_of(node: ast.ClassDef) -> int:
    """The lines of a class without its docstrings: what users read of a verb makes no class harder to follow."""
    described = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [one.body[0] for one in ast.walk(node) if isinstance(one, described) and ast.get_docstring(one)]
    return sum(
        sign * (int(one.end_lineno or 0) - one.lineno + 1)
        for sign, one in [(1, node), *((-1, text) for text in texts)]
    )


def with_bases(name: str, classes: Classes) -> set[str]:
    """A class and all that it inherits from in the package."""
    above = {base for base in classes[name][1] if base in classes}
    return {name}.union(*(with_bases(base, classes) for base in above))


@cache
def classes_of_package() -> Classes:
    classes: Classes = {}
    for path in sorted((ROOT / "safewrite").rglob("*.py")):
        classes |= classes_in(path)
    return classes


def lines_of_towers() -> dict[str, int]:
    classes = classes_of_package()
    return {name: sum(classes[one][0] for one in with_bases(name, classes)) for name in classes}


def test_no_class_is_longer_with_its_bases_than_it_may_be() -> None:
    """Cut into bases in many files, a class is as large as before, and harder to follow."""
    lines = lines_of_towers()
    table, delta = lines["safewrite.table.verbs.Table"], lines["safewrite.delta.table.DeltaTable"]
    assert delta > table > 0  # bases are found
    assert {name: count for name, count in lines.items() if count > CLASS_LINES_MAX} == {}


def test_no_class_has_more_than_one_base_in_the_package() -> None:
    classes = classes_of_package()
    bases = {name: sorted(one for one in above if one in classes) for name, (_, above) in classes.items()}
    assert {name: above for name, above in bases.items() if len(above) > 1} == {}


def test_every_dependency_has_its_reason_beside_it() -> None:
    lines = (ROOT / "pyproject.toml").read_text().split("[tool.", 1)[0].splitlines()
    requirements = [line for line in lines if re.match(r'    "[A-Za-z0-9-]+(\[[\w,]+\])?[<>=]', line)]
    assert len(requirements) > 15
    assert [line for line in requirements if "  # " not in line] == []


def test_every_dependency_of_users_is_imported_or_run() -> None:
    """What nothing uses is size and risk for nothing; executables are named where servers are started."""
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = {
        re.split(r"[\[<>=]", requirement)[0]
        for group in [PROJECT["project"]["dependencies"], *(extras[name] for name in extras if name != "all")]
        for requirement in group
    }
    imported = imported_by("safewrite", "bench")
    used = {_DISTRIBUTION_OF.get(name, name.replace("_", "-")) for name in imported}
    assert wanted - used - set(_PACKAGE_OF.values()) == set()


def test_every_folder_and_file_that_contributing_names_is_there() -> None:
    spans = re.findall(r"`((?:safewrite|bench|tests)/[^`*]*)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(spans) > 30
    assert [span for span in spans if not (ROOT / span).exists()] == []


def test_the_import_rule_of_contributing_is_the_contract() -> None:
    """Every layer of the contract stands in rule 10, in the same order."""
    (contract,) = (one for one in PROJECT["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    layers = [name for layer in contract["layers"] for name in re.findall(r"\w+", layer)]
    rule = re.search(
        r"^10\. Imports point one way:(.*?)\. `\|`",
        (ROOT / "CONTRIBUTING.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert rule is not None
    assert re.findall(r"`(\w+)`", rule[1]) == layers


def test_the_lock_holds_every_dependency_by_hash() -> None:
    alone = {"audit", "bootstrap", "docs"}  # these have locks of their own
    groups = [group for name, group in PROJECT["dependency-groups"].items() if name not in alone]
    extras = [extra for name, extra in PROJECT["project"]["optional-dependencies"].items() if name != "all"]
    wanted = {
        re.split(r"[\[<>=]", requirement)[0]
        for group in [PROJECT["project"]["dependencies"], *extras, *groups]
        for requirement in group
    }
    lock = (ROOT / "requirements" / "dev.txt").read_text()
    assert wanted <= set(re.findall(r"^([a-z0-9-]+)(?:\[[\w,-]+\])?==", lock, re.MULTILINE))


@pytest.mark.parametrize("lock", sorted(path.name for path in (ROOT / "requirements").glob("*.txt")))
def test_every_line_of_a_lock_is_pinned_and_hashed(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert [e.split()[0] for e in entries if "==" not in e.split()[0] or "--hash=sha256:" not in e] == []


def test_the_version_stands_in_one_place_and_the_changelog_opens_with_it() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "safewrite/version.py"
    declared = safewrite.__version__
    assert version(PROJECT["project"]["name"]) == declared
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == declared


def test_decisions_are_numbered_without_gaps_and_have_their_four_headings() -> None:
    notes = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [note.name[:4] for note in notes] == [f"{number:04}" for number in range(1, len(notes) + 1)]
    for note in notes:
        text = note.read_text()
        assert text.startswith(f"# {note.name[:4]}. "), note.name
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequence", "Rejected"], note.name


def test_the_index_of_decisions_says_of_each_note_whether_it_holds() -> None:
    """By question, each note once; what a later note replaced says so itself, in its first line."""
    index = (ROOT / "docs" / "decisions.md").read_text()
    rows = re.findall(r"^\| \[(\d{4})\]\(decisions/(\S+\.md)\) \| (.+) \| (.+) \|$", index, re.MULTILINE)
    notes = {note.name: note.read_text() for note in (ROOT / "docs" / "decisions").glob("*.md")}
    assert sorted(name for _, name, _, _ in rows) == sorted(notes)
    for number, name, title, status in rows:
        opening = notes[name].splitlines()
        assert opening[0] == f"# {number}. {title}"
        assert re.match("holds|superseded by|under revision", status), name
        assert (opening[2].lower().split()[0] if opening[2][0] != "#" else "") in (
            "",
            "adds",
            "supersedes",
        ) or (status.split()[0] != "holds" or "but for" in status), name
