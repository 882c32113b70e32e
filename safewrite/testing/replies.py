"""Makes the replies of a fault: errors in each service's own words, and corrupted bodies."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safewrite.testing.faults import FaultKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safewrite.testing.faults import Service


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that a fault makes up."""

    status: int
    content_type: str
    body: bytes


# A proxy between a client and any of the services has one language.
_IN_BETWEEN: Mapping[FaultKind, tuple[int, str]] = {
    FaultKind.LOST_ANSWER_502: (502, "BadGateway"),
    FaultKind.LOST_ANSWER_503: (503, "ServiceUnavailable"),
    FaultKind.LOST_ANSWER_504: (504, "GatewayTimeout"),
    FaultKind.ERROR_502: (502, "BadGateway"),
    FaultKind.ERROR_503: (503, "ServiceUnavailable"),
    FaultKind.ERROR_504: (504, "GatewayTimeout"),
}
_S3_ERRORS: Mapping[FaultKind, tuple[int, str]] = {
    **_IN_BETWEEN,
    FaultKind.LOST_ANSWER_500: (500, "InternalError"),
    FaultKind.ERROR_500: (500, "InternalError"),
    FaultKind.CONFLICT_409: (409, "ConditionalRequestConflict"),
    FaultKind.PRECONDITION_412: (412, "PreconditionFailed"),
    FaultKind.THROTTLE: (503, "SlowDown"),
    FaultKind.FORBIDDEN_403: (403, "AccessDenied"),
}
_DYNAMODB_ERRORS: Mapping[FaultKind, tuple[int, str]] = {
    **_IN_BETWEEN,
    FaultKind.LOST_ANSWER_500: (500, "InternalServerError"),
    FaultKind.ERROR_500: (500, "InternalServerError"),
    FaultKind.CONFLICT_409: (400, "TransactionConflictException"),
    FaultKind.PRECONDITION_412: (400, "ConditionalCheckFailedException"),
    FaultKind.THROTTLE: (400, "ProvisionedThroughputExceededException"),
    FaultKind.FORBIDDEN_403: (400, "AccessDeniedException"),
}
_GLUE_ERRORS: Mapping[FaultKind, tuple[int, str]] = {
    **_DYNAMODB_ERRORS,
    FaultKind.LOST_ANSWER_500: (500, "InternalServiceException"),
    FaultKind.ERROR_500: (500, "InternalServiceException"),
    FaultKind.CONFLICT_409: (400, "ConcurrentModificationException"),
    FaultKind.PRECONDITION_412: (400, "ConcurrentModificationException"),
    FaultKind.THROTTLE: (400, "ThrottlingException"),
}
_REST_ERRORS: Mapping[FaultKind, tuple[int, str]] = {
    **_IN_BETWEEN,
    FaultKind.LOST_ANSWER_500: (500, "InternalServerError"),
    FaultKind.ERROR_500: (500, "InternalServerError"),
    FaultKind.CONFLICT_409: (409, "CommitFailedException"),
    FaultKind.PRECONDITION_412: (409, "CommitFailedException"),
    FaultKind.THROTTLE: (429, "TooManyRequestsException"),
    FaultKind.FORBIDDEN_403: (403, "ForbiddenException"),
}
_ERRORS: Mapping[Service, Mapping[FaultKind, tuple[int, str]]] = {
    "s3": _S3_ERRORS,
    "dynamodb": _DYNAMODB_ERRORS,
    "glue": _GLUE_ERRORS,
    "rest": _REST_ERRORS,
}


def error_reply(kind: FaultKind, service: Service) -> Reply | None:
    """The error that ``kind`` answers with, as ``service`` words it; None where it answers otherwise."""
    known = _ERRORS[service].get(kind)
    if known is None:
        return None
    status, code = known
    message = f"injected fault {kind}"
    match service:
        case "dynamodb":
            plain = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}
            return Reply(status, "application/x-amz-json-1.0", json.dumps(plain).encode())
        case "glue":
            plain = {"__type": code, "Message": message}
            return Reply(status, "application/x-amz-json-1.1", json.dumps(plain).encode())
        case "rest":
            error = {"error": {"message": message, "type": code, "code": status}}
            return Reply(status, "application/json", json.dumps(error).encode())
        case "s3":
            text = '<?xml version="1.0" encoding="UTF-8"?>\n'
            text += f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
            return Reply(status, "application/xml", text.encode())


def corrupt(kind: FaultKind, body: bytes) -> bytes:
    """``body`` after ``TRUNCATE_BODY`` or ``FLIP_BIT``; an empty body stays as it is."""
    middle = len(body) // 2
    if kind is FaultKind.TRUNCATE_BODY:
        return body[:middle]
    if kind is FaultKind.FLIP_BIT and body:
        return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
    return body
