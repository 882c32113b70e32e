"""Finds rules of a bucket that remove objects which a table needs.

S3 tells in ``x-amz-expiration`` when a rule will remove the object that an answer is about, and nothing where none will.  So a
writer sees it in the answers to its own uploads, and doctor reads the first byte of some objects where it may not ask for the rules.
"""

from __future__ import annotations

import email.utils
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from safewrite.findings import DANGER, Finding, Findings

log = logging.getLogger("safewrite")

EXPIRES = "x-amz-expiration"
KEPT_DAYS = 14
"""For so long a key is remembered (docs/promise.md)."""
DAY_S = 24 * 3600
_FIELDS = re.compile(r'([a-z-]+)="([^"]*)"')
_KEYS = "the keys of writes, which a redelivery is known by: its rows would be committed again"
_SPARE = ("_safewrite/queue/", "_safewrite/probe/", "_delta_log/.tmp/", "_delta_log/_last_checkpoint")
"""What no commit needs after a day."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A folder of a table, "" for all the others; objects there are needed for ``days``, None as long as the table is there."""

    folder: str
    lost: str
    days: int | None = None

    def spares(self, days: float | None) -> bool:
        """Whether a rule that removes objects after so many days leaves them for long enough."""
        return self.days is not None and days is not None and days >= self.days


_FILES = Kept("", "data files and metadata, which the table cannot be read without")
DELTA = (
    Kept("_delta_log/", "commits of the log, which the table cannot be read without"),
    Kept("_safewrite/changes/", "the record of deleted keys: apply_changes would be refused"),
    Kept("_safewrite/ledger/", _KEYS, KEPT_DAYS),
    Kept("_safewrite/members/", "the keys of large groups: a repeat would be refused", KEPT_DAYS),
    Kept("", "data files, which rows cannot be read without"),
)
ICEBERG = (_FILES,)
LEDGER = (Kept("", _KEYS, KEPT_DAYS),)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a bucket, as its configuration or an answer about an object shows it."""

    id: str
    days: float | None = None
    prefix: str | None = None

    def text(self) -> str:
        """The rule as a sentence begins with it."""
        where = f", for objects under {self.prefix!r}," if self.prefix else ""
        after = "" if self.days is None else f" {self.days:.0f} days after they are written"
        return f"Lifecycle rule {self.id!r} of the bucket{where} removes objects{after}"


def told(headers: Mapping[str, str]) -> Rule | None:
    """The rule that will remove the object of an answer; None where none does."""
    found = dict(_FIELDS.findall(headers.get(EXPIRES, "")))
    if not found:
        return None
    ends, began = (
        _seconds(text)
        for text in (found.get("expiry-date"), headers.get("last-modified") or headers.get("date"))
    )
    # A rule counts whole days, and removes at the midnight after them.
    days = None if ends is None or began is None else (ends - began) // DAY_S
    return Rule(found.get("rule-id", ""), days)


def is_leaving(headers: Mapping[str, str]) -> bool:
    """Whether a rule removes the object of an answer within a day, by the store's own time, or could have done so.

    A day ahead, for what was written just after it, and before a midnight.
    """
    ends = _seconds(dict(_FIELDS.findall(headers.get(EXPIRES, ""))).get("expiry-date"))
    now = _seconds(headers.get("date"))
    return ends is not None and now is not None and ends - now <= DAY_S


def _seconds(text: str | None) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text or "").timestamp()
    except (ValueError, TypeError):
        return None


# --- by a writer ------------------------------------------------------------------------------------
_warned: set[tuple[str, str, str]] = set()
WARNED_MAX = 1_000


def warn(headers: Mapping[str, str], root: str, path: str) -> None:
    """Warn once of a rule that will remove an object which was just written, if the table needs it."""
    kept, rule = _kept(path), told(headers)
    if kept is None or rule is None or kept.spares(rule.days):
        return
    mark = (root, rule.id, kept.folder)
    if mark in _warned or len(_warned) >= WARNED_MAX:
        return
    _warned.add(mark)
    where = f"{root}/{kept.folder or path.rpartition('/')[0]}"
    log.warning(
        "%s, such as one just written under %s: %s. %s", rule.text(), where, kept.lost, _mend(kept, where)
    )


def _kept(path: str) -> Kept | None:
    """Which objects a path belongs to, in a table's folder or from the bucket's root on; None for those that may go."""
    if any(spare in path for spare in _SPARE):
        return None
    return next((one for one in DELTA if one.folder and one.folder in path), _FILES)


def _mend(kept: Kept, where: str) -> str:
    if kept.days is not None:
        return f"Let the rule leave {where} for {kept.days + 1} days at least."
    return f"Let the rule leave {where} alone: rules go by prefix, tag or size. VACUUM, or expiring snapshots, removes files."


# --- by doctor ----------------------------------------------------------------------------------------
def examine(
    client: Any, bucket: str, root: str, table: Sequence[Kept], samples: Iterable[str] = ()
) -> Findings:
    """What rules of a bucket will take from under ``root`` (no slash at its end); ``samples`` are paths of objects there.

    The rules are asked for, and where that is not allowed, or a store answers otherwise, the samples.
    """
    base = f"{root}/" if root else ""
    hit: dict[Rule, list[Kept]] = {}
    for rule in _rules(client, bucket):
        hit[rule] = [kept for kept in table if _touches(rule, base, kept) and not kept.spares(rule.days)]
    for path in samples:
        seen, kept = _seen(client, bucket, base + path), _of(path, table)
        if seen is not None and kept is not None and not kept.spares(seen.days):
            rule = next((one for one in hit if one.id == seen.id), seen)
            there = hit.setdefault(rule, [])
            there.extend([] if kept in there else [kept])
    for rule, lost in hit.items():
        if lost:
            yield Finding(
                DANGER, "lifecycle_rule",
                f"{rule.text()}. It takes {'; and '.join(dict.fromkeys(kept.lost for kept in lost))}.",
                " ".join(dict.fromkeys(_mend(kept, f"s3://{bucket}/{base}{kept.folder}") for kept in lost)),
                {"rule": rule.id, "prefix": rule.prefix, "days": rule.days,
                 "takes": [f"{base}{kept.folder}" for kept in lost]},
            )  # fmt: skip


def _rules(client: Any, bucket: str) -> list[Rule]:
    """Rules that remove objects; those that go by tags take none of safewrite's, which have no tags."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        found = client.get_bucket_lifecycle_configuration(Bucket=bucket).get("Rules", ())
    except (BotoCoreError, ClientError):
        return []  # none, or not allowed to look
    rules = []
    for one in found:
        scope, ends = one.get("Filter", {}), one.get("Expiration", {})
        both = scope.get("And", {})
        prefix = str(one.get("Prefix") or scope.get("Prefix") or both.get("Prefix") or "")
        removes = "Days" in ends or "Date" in ends  # else delete markers only
        if one.get("Status") == "Enabled" and removes and not (scope.get("Tag") or both.get("Tags")):
            rules.append(Rule(str(one.get("ID", "")), ends.get("Days"), prefix))
    return rules


def _touches(rule: Rule, base: str, kept: Kept) -> bool:
    prefix, folder = rule.prefix or "", base + kept.folder
    if folder.startswith(prefix):
        return True
    inside = prefix.startswith(folder)
    spare = any(prefix.startswith(base + one) for one in _SPARE)
    # What is under no other folder are data files.
    others = (
        not kept.folder
        and base
        and any(prefix.startswith(base + one) for one in ("_delta_log", "_safewrite"))
    )
    return inside and not spare and not others


def _of(path: str, table: Sequence[Kept]) -> Kept | None:
    return next((kept for kept in table if path.startswith(kept.folder)), None)


def _seen(client: Any, bucket: str, key: str) -> Rule | None:
    """What the store says of an object; None also where it cannot be read."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer = client.get_object(Bucket=bucket, Key=key, Range="bytes=0-0")
        answer["Body"].read()
    except (BotoCoreError, ClientError):
        return None
    return told(answer["ResponseMetadata"]["HTTPHeaders"])
