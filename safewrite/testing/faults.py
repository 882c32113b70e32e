"""Draws faults as frozen data from one seed: which request is hit, by what, and how often.

A :class:`FaultPlan` is a seed and some :class:`Rule` s; :class:`Faults` applies it to a stream of
:class:`Request` s.  Nothing here does I/O: the same plan drives the HTTP proxy of the stress runs
and any in-process double of a store.  Whether a rule fires depends on the seed, the rule's place in
the plan and how many requests it has matched so far, on nothing else, so a plan replays.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import parse_qs, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Service: TypeAlias = Literal["s3", "dynamodb", "glue", "rest"]
"""``rest`` is Iceberg's REST catalog."""

LEDGER_PREFIX = "safewrite:ledger:"
LEASE_PREFIX = "safewrite:lease:"
GLUE_PREFIX = "AWSGlue."


class FaultKind(StrEnum):
    """What happens to a request.  "Performed" means that the store has executed it."""

    LOST_ANSWER = "lost_answer"
    """Performed; the connection is cut instead of an answer (A2, A3, G4)."""
    LOST_ANSWER_500 = "lost_answer_500"
    """Performed; answered with 500."""
    LOST_ANSWER_502 = "lost_answer_502"
    """Performed; answered with 502, as by a load balancer whose server died."""
    LOST_ANSWER_503 = "lost_answer_503"
    """Performed; answered with 503 ServiceUnavailable."""
    LOST_ANSWER_504 = "lost_answer_504"
    """Performed; answered with 504, as by a load balancer that waited too long."""
    ERROR_500 = "error_500"
    """Not performed; answered with 500."""
    ERROR_502 = "error_502"
    """Not performed; answered with 502."""
    ERROR_503 = "error_503"
    """Not performed; answered with 503 ServiceUnavailable."""
    ERROR_504 = "error_504"
    """Not performed; answered with 504."""
    CONFLICT_409 = "conflict_409"
    """Not performed; 409 ConditionalRequestConflict, DynamoDB's TransactionConflictException (A18), or
    what a catalog says when another commit came first."""
    PRECONDITION_412 = "precondition_412"
    """Performed; answered with 412, a failed conditional check or a catalog's conflict, as a hidden
    resend sees it (A2)."""
    THROTTLE = "throttle"
    """Not performed; 503 SlowDown, or DynamoDB's ProvisionedThroughputExceededException (G1, G2)."""
    FORBIDDEN_403 = "forbidden_403"
    """Not performed; access denied (G10)."""
    DELAY = "delay"
    """Performed after ``delay_s``."""
    LATE = "late"
    """The connection is cut at once; performed ``delay_s`` later, unheard."""
    CUT = "cut"
    """Not performed; the connection is cut."""
    TRUNCATE_BODY = "truncate_body"
    """The second half of an upload, or of the answer to a GET, is missing (G5)."""
    FLIP_BIT = "flip_bit"
    """One bit in the middle of the body is flipped, likewise (G5)."""


PERFORMED = frozenset(kind for kind in FaultKind if kind.startswith("lost_answer")) | {
    FaultKind.PRECONDITION_412
}
"""The faults of an answer whose request the store has executed at once."""


class RequestStep(StrEnum):
    """The purpose of a request.  ``get_*`` steps are GET and HEAD; a rule's ``method`` tells them apart."""

    PUT_DATA = "put_data"
    GET_DATA = "get_data"
    PUT_TEMP = "put_temp"
    GET_TEMP = "get_temp"
    PUT_COMMIT = "put_commit"
    GET_COMMIT = "get_commit"
    PUT_CHECKPOINT = "put_checkpoint"
    GET_CHECKPOINT = "get_checkpoint"
    LIST_LOG = "list_log"
    LIST_OTHER = "list_other"
    MULTIPART = "multipart"
    DELETE = "delete"
    PROBE = "probe"
    PUT_LEDGER = "put_ledger"
    UPDATE_LEDGER = "update_ledger"
    GET_LEDGER = "get_ledger"
    LEASE = "lease"
    DDB_PUT_ENTRY = "ddb_put_entry"
    DDB_UPDATE_ENTRY = "ddb_update_entry"
    DDB_GET_ENTRY = "ddb_get_entry"
    DDB_QUERY = "ddb_query"
    DDB_OTHER = "ddb_other"
    PUT_METADATA = "put_metadata"
    GET_METADATA = "get_metadata"
    PUT_MANIFEST_LIST = "put_manifest_list"
    GET_MANIFEST_LIST = "get_manifest_list"
    PUT_MANIFEST = "put_manifest"
    GET_MANIFEST = "get_manifest"
    CATALOG_COMMIT = "catalog_commit"
    CATALOG_CREATE = "catalog_create"
    CATALOG_LOAD = "catalog_load"
    CATALOG_OTHER = "catalog_other"
    PUT_MEMORY = "put_memory"
    """What a table under a change log remembers of deleted keys."""
    GET_MEMORY = "get_memory"
    PUT_OTHER = "put_other"
    GET_OTHER = "get_other"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a fault plan can see of one HTTP request.

    ``path`` and ``query`` are as on the wire (percent-encoded, without ``?``); ``target`` is the
    operation of DynamoDB (``"PutItem"``) or Glue (``"AWSGlue.UpdateTable"``), empty for the others;
    ``body`` is looked at for DynamoDB only; ``create_only`` says that an S3 PUT carries
    ``If-None-Match``.
    """

    method: str
    path: str
    query: str = ""
    target: str = ""
    body: bytes = field(default=b"", repr=False)
    create_only: bool = False

    @property
    def service(self) -> Service:
        """The service that is asked."""
        if self.target:
            return "glue" if self.target.startswith(GLUE_PREFIX) else "dynamodb"
        # The name of a bucket has at least three characters.
        return "rest" if self.path.startswith("/v1/") else "s3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One fault and the requests it hits; empty conditions match everything.

    ``steps``, ``method``, ``path_regex`` (searched in the decoded path) and ``target`` choose the
    requests.  It fires on the ``nth`` of those only (from 1), on ``every`` n-th, with ``probability``, or,
    with none of the three, on all; at most ``times`` times in all.  ``delay_s`` is for ``DELAY`` and
    ``LATE``.  Raises ``ValueError`` for a rule that makes no sense.
    """

    kind: FaultKind
    steps: tuple[RequestStep, ...] = ()
    method: str = ""
    path_regex: str = ""
    target: str = ""
    probability: float | None = None
    nth: int | None = None
    every: int | None = None
    times: int | None = None
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        if sum(choice is not None for choice in (self.probability, self.nth, self.every)) > 1:
            raise ValueError(f"give one of probability, nth, every: {self}")
        if self.probability is not None and not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"probability is outside 0..1: {self}")
        if any(count is not None and count < 1 for count in (self.nth, self.every, self.times)):
            raise ValueError(f"nth, every and times count from 1: {self}")
        if (self.kind in (FaultKind.DELAY, FaultKind.LATE)) != (self.delay_s > 0):
            raise ValueError(f"delay and late need delay_s > 0, and nothing else takes it: {self}")
        try:
            re.compile(self.path_regex)
        except re.error as error:
            raise ValueError(f"path_regex does not compile ({error}): {self}") from None

    def matches(self, request: Request, step: RequestStep) -> bool:
        """Whether the rule is about this request at all."""
        return (
            (not self.steps or step in self.steps)
            and (not self.method or self.method == request.method)
            and (not self.target or self.target == request.target)
            and (not self.path_regex or re.search(self.path_regex, unquote(request.path)) is not None)
        )

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Rule:
        """The rule that :func:`dataclasses.asdict` made plain; ``ValueError`` for unknown names."""
        unknown = sorted(plain.keys() - {known.name for known in fields(cls)})
        if unknown:
            raise ValueError(f"unknown in a rule: {', '.join(unknown)}")
        if "kind" not in plain:
            raise ValueError(f"a rule needs a kind: {dict(plain)}")
        steps = tuple(RequestStep(step) for step in plain.get("steps", ()))
        return cls(**{**plain, "kind": FaultKind(plain["kind"]), "steps": steps})


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """All faults of a run.  The first rule that fires on a request has it; the others still count it."""

    seed: int = 0
    rules: tuple[Rule, ...] = ()

    def to_json(self) -> str:
        """The plan as one line of JSON, keys sorted: equal plans have equal text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> FaultPlan:
        """Read what :meth:`to_json` wrote; ``ValueError`` where it is no plan."""
        plain = json.loads(text)
        if not isinstance(plain, dict) or plain.keys() - {"seed", "rules"}:
            raise ValueError("a fault plan is an object with seed and rules")
        return cls(int(plain.get("seed", 0)), tuple(Rule.from_dict(rule) for rule in plain.get("rules", ())))


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that fired: ``seq`` is the request's number among those that the rule matched, from 1."""

    kind: FaultKind
    step: RequestStep
    delay_s: float
    rule: int
    seq: int


class Faults:
    """A plan being applied: counts what each rule has seen and decides.  Not thread-safe."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        self._matched = [0] * len(plan.rules)
        self._fired = [0] * len(plan.rules)

    def decide(self, request: Request, step: RequestStep | None = None) -> Fault | None:
        """The fault for this request, if any; ``step`` saves classifying it again."""
        step = step if step is not None else classify(request)
        chosen: Fault | None = None
        for index, rule in enumerate(self.plan.rules):
            if not rule.matches(request, step):
                continue
            self._matched[index] += 1
            spent = rule.times is not None and self._fired[index] >= rule.times
            if chosen is None and not spent and _fires(self.plan.seed, index, rule, self._matched[index]):
                self._fired[index] += 1
                chosen = Fault(rule.kind, step, rule.delay_s, index, self._matched[index])
        return chosen


def _fires(seed: int, index: int, rule: Rule, seq: int) -> bool:
    if rule.nth is not None:
        return seq == rule.nth
    if rule.every is not None:
        return seq % rule.every == 0
    if rule.probability is not None:
        digest = hashlib.blake2b(f"{seed}:{index}:{seq}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < rule.probability * 2**64
    return True


# --- the purpose of a request -----------------------------------------------------------------
_OBJECT_STEPS: Iterable[tuple[re.Pattern[str], RequestStep, RequestStep]] = (
    # safewrite's and Spark's temps, and those of deltalake's unsafe rename.
    (re.compile(r"/_delta_log/(\.tmp/|_commit_[^/]*\.tmp$)"), RequestStep.PUT_TEMP, RequestStep.GET_TEMP),
    (re.compile(r"/_delta_log/\d{20}\.json$"), RequestStep.PUT_COMMIT, RequestStep.GET_COMMIT),
    (
        re.compile(r"/_delta_log/(_last_checkpoint$|_sidecars/|\d{20}\.checkpoint\.)"),
        RequestStep.PUT_CHECKPOINT,
        RequestStep.GET_CHECKPOINT,
    ),
    (re.compile(r"\.parquet$"), RequestStep.PUT_DATA, RequestStep.GET_DATA),
    (
        re.compile(r"/metadata/[^/]*\.metadata\.json(\.gz)?$"),
        RequestStep.PUT_METADATA,
        RequestStep.GET_METADATA,
    ),
    (
        re.compile(r"/metadata/snap-[^/]*\.avro$"),
        RequestStep.PUT_MANIFEST_LIST,
        RequestStep.GET_MANIFEST_LIST,
    ),
    (re.compile(r"/metadata/[^/]*\.avro$"), RequestStep.PUT_MANIFEST, RequestStep.GET_MANIFEST),
    (
        re.compile(r"/metadata/safewrite-changes-[^/]*\.puffin$"),
        RequestStep.PUT_MEMORY,
        RequestStep.GET_MEMORY,
    ),
    (re.compile(""), RequestStep.PUT_OTHER, RequestStep.GET_OTHER),
)
_DYNAMODB_ENTRY = {
    "PutItem": RequestStep.DDB_PUT_ENTRY,
    "UpdateItem": RequestStep.DDB_UPDATE_ENTRY,
    "GetItem": RequestStep.DDB_GET_ENTRY,
    "Query": RequestStep.DDB_QUERY,
}
_DYNAMODB_LEDGER = {
    "PutItem": RequestStep.PUT_LEDGER,
    "UpdateItem": RequestStep.UPDATE_LEDGER,
    "GetItem": RequestStep.GET_LEDGER,
    "Query": RequestStep.GET_LEDGER,
}


_GLUE_STEPS = {
    "UpdateTable": RequestStep.CATALOG_COMMIT,
    "CreateTable": RequestStep.CATALOG_CREATE,
    "GetTable": RequestStep.CATALOG_LOAD,
}
_REST_STEPS: Iterable[tuple[re.Pattern[str], RequestStep]] = (
    (re.compile(r"POST .*/namespaces/[^/]+/tables/[^/]+$"), RequestStep.CATALOG_COMMIT),
    (re.compile(r"POST /v1/([^/]+/)?transactions/commit$"), RequestStep.CATALOG_COMMIT),
    (re.compile(r"POST .*/namespaces/[^/]+/tables$"), RequestStep.CATALOG_CREATE),
    (re.compile(r"(GET|HEAD) .*/namespaces/[^/]+/tables/[^/]+$"), RequestStep.CATALOG_LOAD),
)


def classify(request: Request) -> RequestStep:
    """The step of a Delta or Iceberg write behind a request, from its method, path, target and body."""
    if request.service == "glue":
        return _GLUE_STEPS.get(request.target.removeprefix(GLUE_PREFIX), RequestStep.CATALOG_OTHER)
    if request.service == "rest":
        line = f"{request.method} {request.path}"
        return next((step for known, step in _REST_STEPS if known.match(line)), RequestStep.CATALOG_OTHER)
    if request.service == "dynamodb":
        return _classify_dynamodb(request)
    return _classify_s3(request)


def _classify_dynamodb(request: Request) -> RequestStep:
    # A search in the JSON text, not a parse: the opening quote makes it "a value that begins with".
    if f'"{LEDGER_PREFIX}'.encode() in request.body:
        return _DYNAMODB_LEDGER.get(request.target, RequestStep.DDB_OTHER)
    if f'"{LEASE_PREFIX}'.encode() in request.body:
        return RequestStep.LEASE
    return _DYNAMODB_ENTRY.get(request.target, RequestStep.DDB_OTHER)


def _classify_s3(request: Request) -> RequestStep:
    path = unquote(request.path)
    query = parse_qs(request.query, keep_blank_values=True)
    if request.method == "DELETE" or "delete" in query:
        return RequestStep.DELETE
    # PyArrow uploads the smallest file in parts; the object is there with the last of the requests.
    completed = request.method == "POST" and "uploadId" in query
    if ("uploads" in query or "uploadId" in query) and not completed:
        return RequestStep.MULTIPART
    if request.method == "GET" and ("list-type" in query or path.strip("/").count("/") == 0):
        in_log = "_delta_log" in "".join(query.get("prefix", ()))
        return RequestStep.LIST_LOG if in_log else RequestStep.LIST_OTHER
    writes = completed or request.method == "PUT"
    if path.strip("/").count("/") == 0 or not (writes or request.method in ("GET", "HEAD")):
        return RequestStep.OTHER
    if "/_safewrite/" in path:
        return _classify_own(request, path.partition("/_safewrite/")[2])
    for pattern, put, get in _OBJECT_STEPS:
        if pattern.search(path):
            return put if writes else get
    raise AssertionError("the last pattern matches everything")


def _classify_own(request: Request, path: str) -> RequestStep:
    """Classify the objects that safewrite keeps next to a table: the probe's, the queue's, the ledger's."""
    if "probe" in path:
        return RequestStep.PROBE
    if path.startswith(("lease", "queue")):
        return RequestStep.LEASE
    if path.startswith("changes/"):
        return RequestStep.PUT_MEMORY if request.method == "PUT" else RequestStep.GET_MEMORY
    if request.method != "PUT":
        return RequestStep.GET_LEDGER
    return RequestStep.PUT_LEDGER if request.create_only else RequestStep.UPDATE_LEDGER
