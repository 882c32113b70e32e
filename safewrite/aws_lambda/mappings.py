"""Judges a Lambda function's settings and its event source mappings, for ``safewrite doctor --lambda``.

It only reads settings.  The rules are those of AWS's own pages: *Using Lambda with Amazon SQS*, *... Kinesis*,
*... DynamoDB streams* (partial batch responses, visibility timeout, maxReceiveCount, retries and destinations), and
the replay horizon of safewrite's ledger.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from safewrite.errors import InvalidInputError, StorageError
from safewrite.findings import DANGER, INFO, WARNING, Finding, Findings, Severity
from safewrite.protocol.ask import Limits
from safewrite.stores.advice import cause_of
from safewrite.stores.clients import shared_client
from safewrite.stores.world import LEDGER_TTL_S
from safewrite.text.rendering import said

REQUEST_S = 18
"""The slowest single request of safewrite's clients: 3 s to connect, 15 s to answer."""
VISIBILITY_TIMES = 6
"""AWS: a queue's visibility timeout is at least six times the function's timeout, plus the batching window."""
RECEIVES_MIN = 5
"""AWS: a queue's ``maxReceiveCount`` is at least 5, or messages go away for a moment's throttling."""
MAPPINGS_MAX = 1_000
DAY_S = 24 * 3600
FAILURES = "ReportBatchItemFailures"
DESTINATION = '{"OnFailure": {"Destination": "arn:aws:s3:::BUCKET"}}'
Client = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Function:
    """A Lambda function and what was found about it."""

    name: str
    timeout_s: int
    sources: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"function": self.name, "timeout_s": self.timeout_s, "sources": list(self.sources)}


def examine(function: str, options: Mapping[str, str]) -> Function:
    """Look at a function: its name, its ARN, or ``name:alias`` where the mappings name an alias.

    Raises:
        InvalidInputError: the function does not exist.
        StorageError: Lambda does not answer, or the credentials may not look.
    """
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    def client(service: str) -> Any:
        return shared_client(service, None, options)

    try:
        found = client("lambda").get_function_configuration(FunctionName=function)
        mappings = _mappings(client("lambda"), function)
    except (BotoCoreError, ClientError) as error:
        code = (getattr(error, "response", None) or {}).get("Error", {}).get("Code")
        if isinstance(error, ParamValidationError) or code in (
            "ResourceNotFoundException",
            "ValidationException",
        ):
            raise InvalidInputError(
                f"There is no Lambda function {function!r} in this region: {said(error).rstrip('.')}. Nothing was written. Check its "
                "name, AWS_REGION and the account."
            ) from error
        cause = cause_of(error)
        raise StorageError(
            f"Lambda did not describe the function {function!r}: {said(error).rstrip('.')}. Nothing was written. "
            + (
                "Allow lambda:GetFunctionConfiguration and lambda:ListEventSourceMappings."
                if code == "AccessDeniedException"
                else cause.advice
                if cause
                else "Check region, endpoint and credentials."
            )
        ) from error
    timeout_s = int(found["Timeout"])
    findings = [*_function(timeout_s), *(one for m in mappings for one in judge(m, timeout_s, client))]
    if not mappings:
        findings += _unmapped(function, found)
    order = list(Severity)
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Function(function, timeout_s, tuple(_source(mapping) for mapping in mappings), findings)


def _mappings(client: Any, function: str) -> list[dict[str, Any]]:
    pages = client.get_paginator("list_event_source_mappings").paginate(
        FunctionName=function, PaginationConfig={"MaxItems": MAPPINGS_MAX}
    )
    return [mapping for page in pages for mapping in page.get("EventSourceMappings", ())]


# --- the function -------------------------------------------------------------------------------------
def _function(timeout_s: int) -> Findings:
    default_s = Limits().timeout_s
    if timeout_s <= REQUEST_S:
        yield Finding(
            WARNING, "lambda_timeout",
            f"The function's timeout is {timeout_s} s, and one slow request of a store may take {REQUEST_S} s: a write may be killed "
            "in the middle again and again. No row is lost or doubled by that, and none may ever be acknowledged.",
            "Raise the function's timeout to a minute, and give safewrite.open(timeout_s=40).", {"timeout_s": timeout_s},
        )  # fmt: skip
    elif timeout_s <= default_s + REQUEST_S:
        yield Finding(
            INFO, "lambda_timeout",
            f"The function's timeout is {timeout_s} s; a write of safewrite may take {default_s:.0f} s where timeout_s is not given. "
            "A function that is killed reports nothing, and its whole batch comes again.",
            f"safewrite.open(timeout_s=...) with {timeout_s - REQUEST_S} or less, for all writes of one call together.",
            {"timeout_s": timeout_s},
        )  # fmt: skip


def _unmapped(function: str, found: Mapping[str, Any]) -> Findings:
    dead_letters = found.get("DeadLetterConfig", {}).get("TargetArn")
    yield Finding(
        INFO, "lambda_no_mapping",
        f"No event source mapping names {function}. If S3, SNS or EventBridge invokes it, an event is dropped after three failed "
        "attempts" + (f", to {dead_letters}." if dead_letters else ", without a trace unless it has an on-failure destination."),
        "If a mapping names an alias, give name:alias. For asynchronous events set an on-failure destination: aws lambda "
        "put-function-event-invoke-config.",
    )  # fmt: skip


# --- its mappings -------------------------------------------------------------------------------------
def judge(mapping: Mapping[str, Any], timeout_s: int, client: Client) -> Findings:
    """What is unsafe about one mapping of a function with this timeout; ``client`` makes clients of SQS and Kinesis."""
    source = _source(mapping)
    kind = _kind(source)
    if mapping.get("State") in ("Disabled", "Disabling"):
        yield _finding(INFO, "lambda_mapping_disabled", mapping, f"The mapping of {source} is disabled: nothing comes from it.",
                       f"{_update(mapping)} --enabled, if that is not meant.")  # fmt: skip
    if kind in ("sqs", "kinesis", "dynamodb") and FAILURES not in (
        mapping.get("FunctionResponseTypes") or ()
    ):
        yield _finding(
            DANGER, "lambda_no_partial_batches", mapping,
            f"The mapping of {source} has no {FAILURES}: if the function returns a list of failed records, they count as done, and "
            "are lost.",
            f"{_update(mapping)} --function-response-types {FAILURES}",
        )  # fmt: skip
    if kind == "sqs":
        yield from _queue(mapping, source, timeout_s, client)
    elif kind in ("kinesis", "dynamodb"):
        yield from _stream(mapping, source, kind, client)


def _queue(mapping: Mapping[str, Any], source: str, timeout_s: int, client: Client) -> Findings:
    answer = _attributes(client, source)
    if isinstance(answer, Exception):
        yield _unreadable(mapping, source, answer, "sqs:GetQueueUrl and sqs:GetQueueAttributes")
        return
    visible_s = int(answer.get("VisibilityTimeout", 30))
    wanted_s = VISIBILITY_TIMES * timeout_s + int(mapping.get("MaximumBatchingWindowInSeconds") or 0)
    numbers = {"visibility_timeout_s": visible_s, "timeout_s": timeout_s, "wanted_s": wanted_s}
    cure = f"Set the queue's visibility timeout to {wanted_s} s (six times the function's timeout, plus the batching window)."
    if visible_s < timeout_s:
        yield _finding(
            DANGER, "lambda_visibility", mapping,
            f"Messages of {source} are visible again after {visible_s} s, while the function may work on them for {timeout_s} s: they "
            "are delivered twice at once. The key keeps their rows from being doubled, but each delivery counts, and good "
            "messages end as dead letters.", cure, numbers,
        )  # fmt: skip
    elif visible_s < wanted_s:
        yield _finding(
            WARNING, "lambda_visibility", mapping,
            f"The visibility timeout of {source} is {visible_s} s, less than AWS's advice of {wanted_s} s: where the function is "
            "throttled, messages are delivered again before they were tried, and may end as dead letters.", cure, numbers,
        )  # fmt: skip
    yield from _dead_letters(mapping, source, answer, client)


def _dead_letters(
    mapping: Mapping[str, Any], source: str, attributes: Mapping[str, str], client: Client
) -> Findings:
    policy: dict[str, Any] = {}
    with suppress(ValueError, TypeError):
        policy = dict(json.loads(attributes.get("RedrivePolicy") or "{}"))
    target = str(policy.get("deadLetterTargetArn") or "")
    kept_s = int(attributes.get("MessageRetentionPeriod", 4 * DAY_S))
    if not target:
        yield _finding(
            WARNING, "lambda_no_dead_letters", mapping,
            f"{source} has no redrive policy: a message that can never be written comes back until its retention of "
            f"{_days(kept_s)} ends, and then is lost.",
            f"Give the queue a redrive policy with a dead-letter queue and a maxReceiveCount of {RECEIVES_MIN} or more.",
        )  # fmt: skip
        return
    receives = int(policy.get("maxReceiveCount") or 0)
    if receives < RECEIVES_MIN:
        yield _finding(
            WARNING, "lambda_dead_letters_early", mapping,
            f"{source} gives a message up after {receives} deliveries; throttling and a store that is down for a moment use them up.",
            f"Set maxReceiveCount to {RECEIVES_MIN} or more.", {"max_receive_count": receives},
        )  # fmt: skip
    answer = _attributes(client, target)
    if isinstance(answer, Exception):
        yield _unreadable(mapping, target, answer, "sqs:GetQueueUrl and sqs:GetQueueAttributes")
        return
    dead_s = int(answer.get("MessageRetentionPeriod", 4 * DAY_S))
    if dead_s <= kept_s and dead_s < LEDGER_TTL_S and not source.endswith(".fifo"):
        yield _finding(
            WARNING, "lambda_dead_letters_expire", mapping,
            f"The dead-letter queue {target} keeps messages for {_days(dead_s)}, and {source} for {_days(kept_s)}. Their age counts "
            "from when they were first sent, so that a dead letter may be deleted before anybody sees it.",
            f"Set the dead-letter queue's MessageRetentionPeriod to {LEDGER_TTL_S} (14 days).",
            {"dead_letters_s": dead_s, "queue_s": kept_s},
        )  # fmt: skip


def _stream(mapping: Mapping[str, Any], source: str, kind: str, client: Client) -> Findings:
    # -1, which is the default, is without limit; a new mapping of an emulator may not say it.
    age_s, retries = (
        int(mapping.get(name, -1)) for name in ("MaximumRecordAgeInSeconds", "MaximumRetryAttempts")
    )
    target = ((mapping.get("DestinationConfig") or {}).get("OnFailure") or {}).get("Destination")
    numbers = {"record_age_s_max": age_s, "retries_max": retries}
    bisect = "" if mapping.get("BisectBatchOnFunctionError") else " --bisect-batch-on-function-error"
    if age_s < 0 and retries < 0:
        yield _finding(
            WARNING, "lambda_endless_retries", mapping,
            f"The mapping of {source} retries for ever: one record that can never be written stops its shard until the stream deletes "
            "it, and the records behind it with it.",
            f"{_update(mapping)}{bisect} --maximum-record-age-in-seconds 86400 --destination-config '{DESTINATION}': a limit by age "
            "stands out an hour in which a store is away, a few retries do not. A bucket gets the records themselves, a queue or a "
            "topic only their positions.",
            numbers,
        )  # fmt: skip
    elif not target:
        yield _finding(
            DANGER, "lambda_no_failure_destination", mapping,
            f"The mapping of {source} gives records up (retries {_limit(retries)}, age {_limit(age_s)} s) and has no on-failure "
            "destination: they are lost without a trace.",
            f"{_update(mapping)}{bisect} --destination-config '{DESTINATION}': a bucket gets the records themselves, a queue or a topic "
            "only their positions.",
            numbers,
        )  # fmt: skip
    if bisect:
        yield _finding(
            WARNING, "lambda_no_bisection", mapping,
            f"The mapping of {source} does not split a batch that failed: where one record ends the function (its memory, its time), "
            "no answer says which, the whole batch comes again, and after the last retry the good records are given up with it.",
            f"{_update(mapping)}{bisect}, which counts as no retry.", {"bisect": False},
        )  # fmt: skip
    if kind == "kinesis" and age_s < 0:
        yield from _horizon(mapping, source, client)


def _horizon(mapping: Mapping[str, Any], source: str, client: Client) -> Findings:
    """A record that comes again later than keys are remembered; a DynamoDB stream keeps records for a day only."""
    kept: str | None = None
    with suppress(Exception):  # who may not look at the stream gets the general advice
        described = client("kinesis").describe_stream_summary(StreamARN=source)["StreamDescriptionSummary"]
        kept_s = int(described["RetentionPeriodHours"]) * 3600
        if kept_s <= LEDGER_TTL_S:
            return
        kept = f"for {_days(kept_s)}"
    yield _finding(
        WARNING, "lambda_replay_horizon", mapping,
        f"{source} keeps records {kept or 'for up to 365 days'}, its mapping has no greatest age, and keys are remembered for "
        f"{_days(LEDGER_TTL_S)}: a record that comes again after that may be written twice.",
        f"{_update(mapping)} --maximum-record-age-in-seconds 604800 (the most that Lambda takes, 7 days)",
    )  # fmt: skip


# --- texts and requests -------------------------------------------------------------------------------
def _attributes(client: Client, arn: str) -> Mapping[str, str] | Exception:
    """A queue's attributes, or why they cannot be read."""
    account, name = arn.split(":")[4:6]
    try:
        sqs = client("sqs")
        url = sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
        found: Mapping[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"]).get(
            "Attributes", {}
        )
    except Exception as error:  # noqa: BLE001 - it becomes a finding
        return error
    return found


def _unreadable(mapping: Mapping[str, Any], source: str, error: Exception, actions: str) -> Finding:
    cause = cause_of(error)
    advice = f"Allow {actions} on it; if it does not exist, the mapping delivers nothing."
    return _finding(
        WARNING, "lambda_source_unreadable", mapping, f"{source} cannot be looked at: {said(error).rstrip('.')}.",
        advice if cause is None or cause.is_denial else cause.advice,
    )  # fmt: skip


def _finding(  # noqa: PLR0917 - the fields of a finding, in their order
    severity: Severity,
    code: str,
    mapping: Mapping[str, Any],
    message: str,
    mend: str,
    details: Mapping[str, Any] | None = None,
) -> Finding:
    about = {"mapping": mapping.get("UUID"), "source": _source(mapping), **(details or {})}
    return Finding(severity, code, message, mend, about)


def _update(mapping: Mapping[str, Any]) -> str:
    return f"aws lambda update-event-source-mapping --uuid {mapping.get('UUID')}"


def _source(mapping: Mapping[str, Any]) -> str:
    return str(mapping.get("EventSourceArn") or "a source outside AWS")


def _kind(arn: str) -> str:
    parts = arn.split(":")
    return parts[2] if len(parts) > 5 else ""


def _days(seconds: int) -> str:
    return f"{seconds / DAY_S:g} days" if seconds >= 2 * DAY_S else f"{seconds / 3600:g} hours"


def _limit(value: int) -> str:
    return "without limit" if value < 0 else str(value)
