"""What the pages of docs/ name exists: findings of doctor, files, headings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FAULTS = ROOT / "docs" / "faults.md"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]


def test_every_finding_that_the_page_of_faults_names_is_one_of_doctors() -> None:
    modules = [path.read_text() for path in (ROOT / "safewrite").rglob("*.py")]
    known = {code for text in modules if "Finding(" in text for code in re.findall(r'"([a-z_]+)"', text)}
    cells = [cell for cell in FAULTS.read_text().split("|") if "doctor" in cell]
    named = {code for cell in cells for code in re.findall(r"`([a-z]+_[a-z_]+)`", cell)}
    assert len(named) > 15
    assert named <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    wrong = []
    for target, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        path = page.parent / target if target else page
        headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE) if path.is_file() else []
        marks = {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings}
        if not path.exists() or (heading and heading not in marks):
            wrong.append(f"{target}#{heading}")
    assert wrong == []
