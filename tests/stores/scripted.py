"""A server on loopback that gives one answer to every request, and the answers that S3, DynamoDB and what stands before them give."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MD5 = '"841a2d689ad86bd1611447453c22c6fc"'  # of b"body"
NO_BODY = b""


def xml(code: str, more: str = "") -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>why &amp; how</Message>{more}</Error>'.encode()


def said(code: str, more: str = "") -> bytes:
    return f'{{"__type": "com.amazonaws.dynamodb.v20120810#{code}", "message": "why"{more}}}'.encode()


REASONS = ', "CancellationReasons": [{"Code": "ConditionalCheckFailed", "Message": "x"}, {"Code": "None"}, {"Code": "ThrottlingError"}]'
PAGE = (
    b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>'
    b"<Contents><Key>t/a%20b%2B%C3%A4</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified>"
    b"<ETag>&quot;abc&quot;</ETag><Size>12</Size></Contents></ListBucketResult>"
)
Answer = tuple[int, dict[str, str], bytes]
S3_ANSWERS: dict[str, Answer] = {
    "empty": (200, {"ETag": MD5}, NO_BODY),
    "another body than was sent": (200, {"ETag": '"' + "0" * 32 + '"'}, b"body"),
    "encrypted by KMS": (200, {"ETag": '"' + "0" * 32 + '"', "x-amz-server-side-encryption": "aws:kms"}, b"body"),
    "a page": (200, {}, PAGE),
    "a page, not encoded": (200, {}, PAGE.replace(b"<EncodingType>url</EncodingType>", b"")),
    "an empty page": (200, {}, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"),
    "half a page": (200, {}, PAGE[:-40]),
    "an error that is 200": (200, {}, xml("InternalError")),
    "a range": (206, {"Content-Range": "bytes 0-3/99", "ETag": MD5}, b"body"),
    "gone": (204, {}, NO_BODY),
    "not modified": (304, {}, NO_BODY),
    "an error without a body": (404, {}, NO_BODY),
    "an error of a web server": (404, {"Content-Type": "text/html"}, b"<html>not here</html>"),
    "an error that is no XML": (400, {}, b"<Error><Code>Half"),
    "an error of another kind of XML": (400, {}, b"<ErrorResponse><Error><Code>X</Code><Message>m</Message></Error><RequestId>1</RequestId></ErrorResponse>"),
    "500 of a web server": (500, {}, b"<html>down</html>"),
    "500 without a body": (502, {}, NO_BODY),
    "a redirect without a region": (307, {}, xml("TemporaryRedirect")),
    "a redirect to no region": (301, {"x-amz-bucket-region": "not a region!"}, xml("PermanentRedirect")),
    **{
        f"{status} {code}": (status, {}, xml(code))
        for status, code in (
            (400, "BadDigest"), (400, "InvalidDigest"), (400, "ExpiredToken"), (400, "RequestTimeout"), (400, "InvalidRequest"),
            (400, "KMS.DisabledException"), (400, "EntityTooLarge"), (401, "Unauthorized"), (403, "AccessDenied"),
            (403, "RequestTimeTooSkewed"), (403, "SignatureDoesNotMatch"), (403, "InvalidObjectState"), (404, "NoSuchKey"),
            (404, "NoSuchBucket"), (405, "MethodNotAllowed"), (409, "ConditionalRequestConflict"), (409, "OperationAborted"),
            (411, "MissingContentLength"), (412, "PreconditionFailed"), (416, "InvalidRange"), (429, "SlowDown"),
            (500, "InternalError"), (501, "NotImplemented"), (503, "SlowDown"), (503, "ServiceUnavailable"), (504, "GatewayTimeout"),
        )
    },
}  # fmt: skip
DYNAMODB_ANSWERS: dict[str, Answer] = {
    "nothing": (200, {}, b"{}"),
    "an item": (200, {}, (b'{"Item": {"tablePath": {"S": "p"}, "fileName": {"S": "1.json"}, "tempPath": {"S": "t"}, "complete": {"S": "true"}, '
        b'"key": {"S": "k"}, "baseVersion": {"N": "3"}, "fingerprint": {"S": "f"}, "serving": {"N": "1"}, "nextTicket": {"N": "4"}}}')),
    "items": (200, {}, b'{"Items": [{"tablePath": {"S": "p"}, "fileName": {"S": "1.json"}, "tempPath": {"S": "t"}, "expireTime": {"N": "5"}}]}'),
    "responses": (200, {}, b'{"Responses": [{"Item": {"key": {"S": "k"}, "baseVersion": {"N": "3"}, "fingerprint": {"S": "f"}}}, {}]}'),
    "attributes": (200, {}, b'{"Attributes": {"serving": {"N": "1"}, "nextTicket": {"N": "4"}}}'),
    "a cancelled transaction": (400, {}, said("TransactionCanceledException", REASONS)),
    "an error without a body": (400, {}, NO_BODY),
    "an error that is no JSON": (400, {}, b"<html>no</html>"),
    "500 of a web server": (500, {}, b"<html>down</html>"),
    "413": (413, {}, b"Request Entity Too Large"),
    **{
        f"{status} {code}": (status, {}, said(code))
        for status, code in (
            (400, "ConditionalCheckFailedException"), (400, "ProvisionedThroughputExceededException"), (400, "ThrottlingException"),
            (400, "RequestLimitExceeded"), (400, "TransactionConflictException"), (400, "TransactionInProgressException"),
            (400, "ResourceNotFoundException"), (400, "ValidationException"), (400, "AccessDeniedException"), (400, "ExpiredTokenException"),
            (400, "UnrecognizedClientException"), (400, "ItemCollectionSizeLimitExceededException"), (400, "IncompleteSignature"),
            (500, "InternalServerError"), (503, "ServiceUnavailable"),
        )
    },
}  # fmt: skip
ANSWERS = {"s3": S3_ANSWERS, "dynamodb": DYNAMODB_ANSWERS}


class Scripted:
    """A server that gives one answer to every request, or breaks off within it."""

    def __init__(self) -> None:
        self.answer: Answer = (200, {}, NO_BODY)
        self.answers: list[Answer] = []
        """What is answered before that, once each."""
        self.cut_at: int | None = None
        self.last_body = b""
        self.heads: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _reply(self) -> None:
                outer.last_body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.heads.append(
                    (f"{self.command} {self.path}", {k.lower(): v for k, v in self.headers.items()})
                )
                status, headers, body = outer.answers.pop(0) if outer.answers else outer.answer
                whole = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n".encode()
                whole += (
                    b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items()) + b"\r\n"
                )
                whole += b"" if self.command == "HEAD" else body
                self.wfile.write(
                    whole if outer.cut_at is None else whole[: max(0, len(whole) - outer.cut_at)]
                )
                self.close_connection = outer.cut_at is not None

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _reply  # noqa: N815 - the names of the base class

            def log_message(self, *_: Any) -> None:
                """Nothing: a test reads the outcome."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def options(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c"}
        return {"AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1", **keys}

    def body(self) -> bytes:
        """The body of the last request, but for a token that is new in each."""
        return re.sub(rb'"ClientRequestToken": "[0-9a-f-]{36}"', b"TOKEN", self.last_body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
