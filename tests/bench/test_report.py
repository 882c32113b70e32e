"""The stress report says in one sentence what a run proved, and explains its words; page and terminal say the same."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.stress import glossary, report
from bench.stress.arm import ArmResult
from bench.stress.plans.plan import Settings
from bench.stress.progress import Progress
from bench.stress.run import Result
from safewrite.testing.checker import Flaw
from tests.bench.test_stress import result_of, rows_acked

SAFE, NAIVE = "safewrite-dynamodb", "unsafe-rename"


def kept() -> ArmResult:
    return result_of(SAFE, rows_acked(SAFE))


def bitten() -> ArmResult:
    return result_of(NAIVE, rows_acked(NAIVE)[:7])


def run_of(*arms: ArmResult, rows_min: int = 1) -> Result:
    settings = Settings(seed=1, acked_rows_min=rows_min)
    return Result(settings, list(arms), 0.0, 1.0, {"machine": "Linux, 2 CPUs", "revision": "r"})


def summary_of(*arms: ArmResult, rows_min: int = 1) -> dict[str, Any]:
    return report.to_dict(run_of(*arms, rows_min=rows_min))


def terminal_of(run: Result) -> str:
    out = io.StringIO()
    report.show(run, report.to_dict(run), Console(file=out, width=400), Path("out"))
    return out.getvalue()


# --- the sentence -----------------------------------------------------------------------------------
def test_a_valid_run_says_that_nothing_was_lost_and_what_others_lost() -> None:
    assert summary_of(kept(), bitten())["sentence"] == (
        "Through safewrite, 0 of 10 acknowledged rows were lost, doubled or altered, under 0 faults, 0 kills and 0 "
        "pauses. Other writers, checked in the same way: of 10 rows 3 lost, 0 doubled."
    )


def test_t3_d13_a_verdict_says_only_what_ran() -> None:
    """T3-D13: without naive writers it ended with "and the naive writers were bitten"."""
    alone, both, naive = summary_of(kept()), summary_of(kept(), bitten()), summary_of(bitten())
    assert {one["verdict"] for one in (alone, both, naive)} == {"valid"}
    assert "No naive writers ran" in alone["meaning"]
    assert "bitten" not in alone["meaning"]
    assert both["meaning"].endswith("The naive writers were bitten.")
    assert "No writer of safewrite ran" in naive["meaning"]
    assert "no fault was planned" in both["meaning"]
    for run in (run_of(kept()), run_of(kept(), bitten())):
        told = report.to_dict(run)["meaning"]
        assert f"verdict: valid. {told}" in terminal_of(run)
        assert f"<p>{html.escape(told, quote=False)}</p>".replace("'", "&#39;") in report.render(
            run, report.to_dict(run)
        )


def test_one_lost_row_of_safewrite_is_in_the_sentence() -> None:
    said = summary_of(result_of(SAFE, rows_acked(SAFE)[1:]), bitten())["sentence"]
    assert said.startswith("Through safewrite, of 10 acknowledged rows 1 were lost, 0 doubled and 0 altered")
    assert "0 of 10" not in said


@pytest.mark.parametrize("flaw", ["torn", "phantom", "zombie", "misreported", "disagreed"])
def test_no_flaw_is_left_out_of_the_sentence(flaw: str) -> None:
    summary = summary_of(kept())
    summary["arms"][0]["rows"][flaw] = 2
    assert f"Other flaws: {flaw} 2." in glossary.sentence(summary)


def test_rows_that_only_the_log_has_twice_are_doubled() -> None:
    summary = summary_of(kept())
    summary["arms"][0]["rows"]["recommitted"] = 4
    assert "4 doubled" in glossary.sentence(summary)


def test_a_destroyed_table_is_in_the_sentence() -> None:
    lost = bitten()
    lost.destroyed = "its manifest list is gone"
    assert summary_of(kept(), lost)["sentence"].endswith("3 lost, 0 doubled, 1 table destroyed.")


def test_page_and_terminal_say_the_same_sentence() -> None:
    run = run_of(kept(), bitten())
    summary = report.to_dict(run)
    page = html.unescape(report.render(run, summary))
    assert f"<h1>{summary['sentence']}</h1>" in page
    closing = terminal_of(run).splitlines()
    assert summary["sentence"] in closing
    assert [line for line in closing[closing.index(summary["sentence"]) :] if "report:" in line]


# --- words ------------------------------------------------------------------------------------------
def test_every_row_of_the_closing_table_is_explained() -> None:
    for arm in summary_of(kept(), bitten())["arms"]:
        assert set(report._cells(arm)) <= glossary.WORDS.keys()
        assert arm["verdict"] in glossary.WORDS


def test_every_word_of_the_live_table_is_explained_and_has_what_was_lost() -> None:
    progress = Progress(Console(file=io.StringIO()))
    headings = {str(column.header) for column in progress._table().columns}
    assert headings - {"state", "acked"} <= glossary.WORDS.keys()
    assert {"lost", "doubled"} <= headings


def test_every_flaw_and_verdict_is_explained() -> None:
    assert {str(flaw) for flaw in Flaw} <= glossary.WORDS.keys()
    assert {"valid", "INVALID", "UNKNOWN", "bitten", "unharmed", "table destroyed"} <= glossary.WORDS.keys()


def test_every_heading_of_the_pages_main_table_is_explained_where_it_stands() -> None:
    run = run_of(kept(), bitten())
    page = report.render(run, report.to_dict(run))
    (table,) = re.findall(r'<table class="wide cards">(.*?)</table>', page, re.DOTALL)
    headings = re.findall(r"<th[^>]*>(.*?)</th>", table)
    assert len(headings) == 20
    explained = [re.fullmatch(r'<dfn title="([^"]{10,})">([^<]+)</dfn>', heading) for heading in headings]
    assert all(explained)
    # A phone shows no table heads: each cell but the first carries its own.
    assert table.count("data-label=") == 2 * (len(headings) - 1)


def test_page_and_terminal_have_the_same_words() -> None:
    run = run_of(kept(), bitten())
    page = report.render(run, report.to_dict(run))
    headings = set(re.findall(r"<dfn[^>]*>([^<]+)</dfn>", page))
    cells = set(report._cells(report.to_dict(run)["arms"][0]))
    assert cells - headings == {"kinds"}  # the page shows each kind in a table of its own


def test_the_contents_lead_to_sections_of_the_page() -> None:
    run = run_of(kept(), bitten())
    page = report.render(run, report.to_dict(run))
    targets = re.findall(r'href="#([^"]+)"', page)
    assert len(targets) > 6
    assert set(targets) <= set(re.findall(r'id="([^"]+)"', page))
    assert page.count("<details") == page.count("</details>") > 6


# --- small runs -------------------------------------------------------------------------------------
def test_a_small_run_says_what_it_lacks_and_which_option_brings_it() -> None:
    unfired = result_of(SAFE, rows_acked(SAFE), fired={"kill after commit.verify": 0})
    run = run_of(unfired, bitten())
    summary = report.to_dict(run)
    assert summary["verdict"] == "UNKNOWN"
    assert "More appends cure it" in summary["lacking"]
    assert summary["lacking"] in terminal_of(run)
    assert summary["lacking"] in html.unescape(report.render(run, summary))
    assert "--limit-s" in summary_of(kept(), rows_min=11)["lacking"]
    assert summary_of(kept(), bitten())["lacking"] == ""
