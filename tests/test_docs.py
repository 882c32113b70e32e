"""What the pages of docs/ name exists: findings of doctor, files, headings."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.config_pages import fields, schemas, written
from tests.each import each
from tests.mutants.faults import FAULTS as SEAM_FAULTS
from tests.test_repository import tracked_files

ROOT = Path(__file__).parent.parent
FAULTS = sorted((ROOT / "docs" / "faults").glob("*.md"))
FAILURE_MODES = ROOT / "docs" / "failure-modes.md"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]


def test_every_finding_that_the_page_of_faults_names_is_one_of_doctors() -> None:
    modules = [path.read_text() for path in (ROOT / "safewrite").rglob("*.py")]
    known = {code for text in modules if "Finding(" in text for code in re.findall(r'"([a-z_]+)"', text)}
    lines = [line for page in FAULTS for line in page.read_text().splitlines() if "doctor" in line]
    named = {code for line in lines for code in re.findall(r"`([a-z]+_[a-z_]+)`", line)}
    assert len(named) > 15
    assert named <= known


@each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    wrong = []
    for target, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        path = page.parent / target if target else page
        headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE) if path.is_file() else []
        marks = {re.sub(r"[^a-z0-9_ -]", "", one.lower()).replace(" ", "-") for one in headings}
        if not path.exists() or (heading and heading not in marks):
            wrong.append(f"{target}#{heading}")
    assert wrong == []


def ids_in(text: str) -> tuple[set[str], set[str]]:
    """Ids such as A17 that a text names: those of failures, and those of docs/faults ("faults A8")."""
    text = text.replace('"""', " ")
    of_faults = set(re.findall(r"\b[Ff]aults ([A-Z]\d+)", text))
    text = re.sub(r"\b[Ff]aults [A-Z]\d+", " ", text)
    found = set(re.findall(r"(?<![\w%\"'/.#-])[A-I][1-9]\d?\b(?![\"'%\w-])", text))
    for letter, first, last in re.findall(r"\b([A-I])(\d+)(?: to |-)\1?(\d+)\b", text):
        found |= {f"{letter}{number}" for number in range(int(first), int(last) + 1)}
    return found, of_faults


def faults() -> set[str]:
    """The ids of faults that users of earlier builds could have met."""
    pages = (re.findall(r"^### ([A-Z]\d+)$", page.read_text(), re.MULTILINE) for page in FAULTS)
    found = [one for page in pages for one in page]
    assert len(found) == len(set(found)) > 80
    return set(found)


def rows_of(page: Path) -> dict[str, str]:
    """The rows of a page's tables by the id that they begin with."""
    return dict(re.findall(r"^\| ([A-Z]\d+) \| (.*)$", page.read_text(), re.MULTILINE))


def test_every_id_that_code_or_a_text_names_has_a_row() -> None:
    failures, met = rows_of(FAILURE_MODES), faults()
    wrong, named = [], set()
    for path in tracked_files():
        if path.suffix not in {".py", ".md", ".java", ".toml"} or path in (FAILURE_MODES, *FAULTS):
            continue
        found, of_faults = ids_in(path.read_text())
        named |= found
        unknown = sorted((found - failures.keys()) | (of_faults - met))
        wrong += [f"{path.relative_to(ROOT)}: {one}" for one in unknown]
    assert wrong == []
    assert len(named) > 60


def test_every_failure_has_a_fault_or_is_named_among_those_that_have_none() -> None:
    text = FAILURE_MODES.read_text().partition("## Faults")[2]
    without = set(re.findall(r"\b[A-I]\d+\b", text))
    assert {one.id for one in SEAM_FAULTS} | without == rows_of(FAILURE_MODES).keys()


def test_every_failure_has_a_proof_that_is_there() -> None:
    """A row without a proof, or one whose test went to another file, is wrong."""
    wrong = []
    for one, row in rows_of(FAILURE_MODES).items():
        proofs = re.findall(r"`((?:tests|safewrite)/[^`]+)`", row)
        missing = [proof for proof in proofs if not (ROOT / proof).is_file()]
        if missing or not proofs:
            wrong.append((one, missing))
    assert wrong == []


def test_every_page_has_its_place_in_the_site() -> None:
    """`make docs` says so too, in an environment of its own."""
    config = (ROOT / "mkdocs.yml").read_text()
    placed = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", config, re.MULTILINE)
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    decisions = {page for page in pages if page.startswith("decisions/0")}
    evidence = {page for page in pages if page.startswith("evidence/")} - {"evidence/index.md"}
    met = {str(page.relative_to(docs)) for page in FAULTS}
    assert sorted(placed) == sorted(pages - decisions - evidence - met)
    assert set(re.findall(r"\]\((faults/\S+\.md)\)", (docs / "faults.md").read_text())) == met
    # T3-D9: they were forty-four lines in the left column of every page.
    assert set(re.findall(r"\]\((decisions/\S+\.md)\)", (docs / "decisions.md").read_text())) == decisions
    named = re.findall(r"\]\(([\w/-]+\.md)\)", (docs / "evidence" / "index.md").read_text())
    assert {f"evidence/{name}" for name in named} == evidence


@pytest.mark.parametrize("page", schemas(), ids=lambda page: page.parent.name)
def test_every_field_of_a_configuration_has_its_heading(page: Path) -> None:
    """`make config-docs` writes what the schema says; text below a heading is by hand, and goes with its field."""
    schema, text = schemas()[page], page.read_text()
    assert text == written(text, schema), "make config-docs, and look at the difference"
    headings = re.findall(r"^### `(.+)`$", text, re.MULTILINE)
    wanted = [name for section in fields(schema).values() for name in section]
    assert headings == wanted, "text by hand below a field that is gone"
    assert len(headings) == len(set(headings)) > 40
    bare = [
        name
        for name in wanted
        if re.search(rf"^### `{re.escape(name)}`\n\n\*[^*]+\*\n\n#", text, re.MULTILINE)
    ]
    assert bare == [], "fields of which nothing is said but their type"


def test_every_page_is_served_as_markdown(tmp_path: Path) -> None:
    """The hook of mkdocs, without mkdocs, which has an environment of its own."""
    hooks = runpy.run_path(str(ROOT / "docs" / "hooks.py"))
    files = [
        SimpleNamespace(src_uri=name, abs_src_path=str(ROOT / "docs" / name))
        for name in ("cdc/index.md", "promise.md", "decisions/0001-record-decisions.md")
    ]
    nav = SimpleNamespace(pages=[SimpleNamespace(file=one) for one in files[:2]])
    hooks["on_nav"](nav, files=SimpleNamespace(documentation_pages=lambda: files))
    hooks["on_post_build"]({"site_dir": str(tmp_path), "site_name": "a name", "site_description": "words"})
    for one in files:
        assert (tmp_path / one.src_uri).read_text() == Path(one.abs_src_path).read_text()
    listed = (tmp_path / "llms.txt").read_text()
    assert listed.startswith(
        "# a name\n\n> words\n\n## Pages\n\n- [Change data of Kafka in many tables](cdc/index.md): `safewrite.cdc`"
    )
    assert listed.index("## Optional") < listed.index("decisions/0001") < len(listed)
    page = SimpleNamespace(file=files[0])
    assert 'type="text/markdown" href="index.md"></head>' in hooks["on_post_page"]("<head></head>", page=page)


def test_t3_d9_the_site_fetches_nothing_and_searches_from_a_disk() -> None:
    """T3-D9: search was missing where pages are opened as files, and code was cut off."""
    config = (ROOT / "mkdocs.yml").read_text()
    assert re.search(r"^  - offline\b", config, re.MULTILINE)
    named = re.findall(r"assets/[\w.-]+", config)
    assert any(
        "iframe-worker" in one for one in named
    )  # else the plugin names an address of a content network
    assert all((ROOT / "docs" / one).is_file() for one in named)
    assert "pre-wrap" in (ROOT / "docs" / "assets" / "site.css").read_text()
