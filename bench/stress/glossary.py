"""Says what a run proved in one sentence, and explains each word that page and terminal use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORDS: Mapping[str, str] = {
    "verdict": "What the checker says of the arm, or of the whole run.",
    "valid": "No row of the arm's, or of the run's, writers through safewrite has a flaw, every planned fault happened, and enough rows were acknowledged; naive writers, where they ran, were bitten.",
    "INVALID": "A row that safewrite acknowledged is lost, doubled, altered or has another flaw.",
    "UNKNOWN": "Nothing wrong was found, but the run proves too little: a planned fault never fired, or too few rows were acknowledged.",
    "bitten": "Naive writers that lost or doubled rows. They must, or the load proves nothing.",
    "unharmed": "Naive writers that lost and doubled nothing: the load was too mild.",
    "table destroyed": "No reader can read the table any more.",
    "arm": "One table with its writers and its faults.",
    "naive": "Writers without safewrite, each with its own settings and faults.",
    "processes": "Writers on the one table, each a process of its own. safewrite on the object store has half of --writers, and at least five.",
    "kinds": "Kinds of writers on the table: frames of pandas, polars, Arrow, Spark, and other engines.",
    "acked rows": "Acknowledged rows: the writer has the answer that they are in the table. Rows of other engines on the same table are not counted here.",
    "lost": "Acknowledged rows that are not in the table.",
    "doubled": "Copies of a row after the first, for readers of the table or of its change feed.",
    "recommitted": "Rows whose file the log adds more than once: a change feed shows them twice.",
    "altered": "Rows with other values than were written.",
    "torn": "Writes of which a part is visible without the rest, or in another version.",
    "phantom": "Rows that no writer ever wrote.",
    "zombie": "Rows of a write that was reported as not committed, and yet there.",
    "misreported": "Writes whose receipt names another version than the log.",
    "disagreed": "Rows that one reader sees and another does not.",
    "unknown": "Writes that ended without an answer: the process was killed and nobody tried again, or the caller gave up. Their rows are there once or not at all.",
    "unanswered": "While it runs: calls without an answer so far. Most are decided by the next try; what stays is unknown.",
    "all rows": "While it runs: acknowledged rows of all writers, those of other engines on the same table included.",
    "refused": "Writes that ended in an error which says that nothing was committed.",
    "acks/s": "Acknowledged writes per second, under the faults and kills of this run.",
    "tries/ack": "Tries at a version for one acknowledged write; 0 where it was found to be committed already.",
    "acks/commit": "Acknowledged writes for each version that carries some: more than one where writers share commits.",
    "calls/ack": "Calls of the writer for one acknowledged write: more than one after a kill or a timeout.",
    "p50": "Half of the acknowledged writes took no longer, from the first call to the ack.",
    "p90": "Nine of ten acknowledged writes took no longer.",
    "p99": "99 of 100 acknowledged writes took no longer.",
    "faults": "Answers that were lost, delayed, cut, refused or falsified by a proxy between writers and stores.",
    "kills": "SIGKILL before or after a named step of a write; the write is tried again by a new process.",
    "changes": "Changes in the log: inserts, updates, deletes, truncates; of a changed key two. Batches that hold some of them again come on top.",
    "keys": "Keys that the table must have at the end, each with the values of its last change.",
    "batches": "Batches of which at least one delivery was acknowledged, of all.",
    "twice": "Batches that are delivered twice, often to two writers; a killed writer delivers its batch again besides.",
    "revived": "Keys that are in the table, and that the log has deleted.",
    "stale": "Keys with an older value than the log's last.",
    "missing": "Keys that are not in the table, and that the log has not deleted.",
    "miscounted": "Batches whose receipts do not add up to their changes, or differ between two deliveries.",
    "other flaws": "Keys that the log never had (phantom), changed keys of which the old one is left (torn), batches whose receipts do not add up (miscounted), keys that readers see differently (disagreed).",
    "pauses": "SIGSTOP at a named step, for longer than the writers wait for each other; then SIGCONT.",
}
"""Every word of the closing table and of the page's tables, with its meaning."""

OTHER_FLAWS = ("torn", "altered", "phantom", "zombie", "recommitted", "misreported", "disagreed")
"""Flaws other than lost and doubled."""


def doubled(rows: Mapping[str, int]) -> int:
    """Doubled rows; those that a change feed shows twice are the ones that the log has twice."""
    return max(rows["doubled"], rows["recommitted"])


def meaning(summary: Mapping[str, Any]) -> str:
    """What the verdict of a run says; of a valid one only what ran in it."""
    if summary["verdict"] != "valid":
        return WORDS[summary["verdict"]]
    safe = [arm for arm in summary["arms"] if not arm["naive"]]
    naive = [arm for arm in summary["arms"] if arm["naive"]]
    happened = sum(arm["faults_fired"] + sum(arm["kills"].values()) + arm["spark_kills"] for arm in safe)
    faults = "every planned fault happened" if happened else "no fault was planned"
    return " ".join(
        (
            f"No row of safewrite's has a flaw, {faults}, and enough rows were acknowledged."
            if safe
            else "No writer of safewrite ran.",
            "The naive writers were bitten."
            if naive
            else "No naive writers ran, so it was not shown that this load harms writers without safewrite.",
        )
    )


def sentence(summary: Mapping[str, Any]) -> str:
    """The run's result for safewrite, and what other writers lost in it."""
    arms = [arm for arm in summary["arms"] if not arm["changes"]]
    safe = [arm for arm in arms if not arm["naive"]]
    naive = [arm for arm in arms if arm["naive"]]
    return " ".join(part for part in (_of_safewrite(safe), _of_others(naive)) if part)


def _of_safewrite(arms: list[dict[str, Any]]) -> str:
    if not arms:
        return ""
    acked, lost, twice, altered = (
        sum(count(arm["rows"]) for arm in arms)
        for count in (
            lambda rows: rows["acked_rows"],
            lambda rows: rows["lost"],
            doubled,
            lambda rows: rows["altered"],
        )
    )
    if lost or twice or altered:
        found = (
            f"of {acked:,} acknowledged rows {lost:,} were lost, {twice:,} doubled and {altered:,} altered"
        )
    else:
        found = f"0 of {acked:,} acknowledged rows were lost, doubled or altered"
    others = {
        name: sum(arm["rows"][name] for arm in arms)
        for name in OTHER_FLAWS
        if name not in ("altered", "recommitted")
    }
    flawed = ", ".join(f"{name} {count:,}" for name, count in others.items() if count)
    kills = sum(sum(arm["kills"].values()) + arm["spark_kills"] for arm in arms)
    pauses = sum(sum(arm["pauses"].values()) for arm in arms)
    faults = sum(arm["faults_fired"] for arm in arms)
    under = f"{counted(faults, 'fault')}, {counted(kills, 'kill')} and {counted(pauses, 'pause')}"
    return f"Through safewrite, {found}, under {under}.{f' Other flaws: {flawed}.' if flawed else ''}"


def _of_others(arms: list[dict[str, Any]]) -> str:
    if not arms:
        return ""
    acked, lost = (sum(arm["rows"][name] for arm in arms) for name in ("acked_rows", "lost"))
    twice = sum(doubled(arm["rows"]) for arm in arms)
    tables = sum(bool(arm["destroyed"]) for arm in arms)
    destroyed = f", {counted(tables, 'table')} destroyed" if tables else ""
    return f"Other writers, checked in the same way: of {acked:,} rows {lost:,} lost, {twice:,} doubled{destroyed}."


def faults_of(arm: Mapping[str, Any]) -> dict[str, int]:
    """How many faults hit an arm's writers at each step."""
    found = arm["peer_faults"] if arm["naive"] else arm["faults"]
    return {step: sum(by_kind.values()) for step, by_kind in found.items()}


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def lacking(summary: Mapping[str, Any]) -> str:
    """What a run lacks that is neither valid nor invalid, and the option that brings it; empty for others."""
    if summary["verdict"] != "UNKNOWN":
        return ""
    reasons = " ".join(summary["reasons"])
    settings = summary["settings"]
    parts = []
    if "never fired" in reasons:
        parts.append(
            f"Each planned fault needs a write that comes by its step: with --writers {settings['writers']} --appends "
            f"{settings['appends']} some had none. More appends cure it (the default is --appends 14); on a busy machine "
            "also --limit-s."
        )
    if "rows acked" in reasons:
        parts.append(
            "Fewer rows were acknowledged than wanted: the time limit ended the arm (--limit-s), or --min-rows is too high."
        )
    if "were never acknowledged" in reasons:
        parts.append(
            "Batches went without an ack: the time limit ended the arm (--limit-s), or their writers gave up."
        )
    if "does not bite" in reasons:
        parts.append("The naive writers were lucky: more writers and appends make them collide.")
    return " ".join(parts)
