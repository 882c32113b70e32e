"""Sends signed requests to S3 and DynamoDB: botocore's signer, connections and errors, without its service models.

The methods are those of boto3's clients, as far as the stores ask them.  Each request goes out once (A3, C3), and what fails
raises the exception that botocore's client would raise.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Mapping
from copy import copy
from datetime import datetime
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from safewrite.stores.advice import note_answer, refuses_keys
from safewrite.stores.endpoints import Reach, is_usual
from safewrite.stores.sender import Sender, StoreAnswer
from safewrite.version import __version__

if TYPE_CHECKING:
    from botocore.auth import SigV4Auth

_AGENT = f"safewrite/{__version__}"
_EXPECT_BYTES = 2**16
"""Above this a body is sent once the store has agreed to it, so that a refusal is heard and not cut off; below it, that costs a trip."""
_OPERATIONS = frozenset({
    "create_table", "delete_item", "describe_continuous_backups", "describe_table", "describe_time_to_live", "get_item", "put_item",
    "query", "scan", "transact_get_items", "transact_write_items", "update_continuous_backups", "update_item", "update_time_to_live",
})  # fmt: skip
_ENCRYPTION = {
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "SSEKMSKeyId": "x-amz-server-side-encryption-aws-kms-key-id",
    "BucketKeyEnabled": "x-amz-server-side-encryption-bucket-key-enabled",
}
_XML_OF_S3 = "http://s3.amazonaws.com/doc/2006-03-01/"
_MOVED = frozenset({"PermanentRedirect", "IllegalLocationConstraintException"})


class _Request(NamedTuple):
    """One request, before it is signed."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes = b""
    in_parts: bool = False
    """Whether the body of the answer is read by who asked."""


class _Signed:
    """One service's requests; a subclass says how they look."""

    def __init__(self, reach: Reach, connections: int) -> None:
        self.reach = reach
        self.meta = SimpleNamespace(region_name=reach.region, endpoint_url=reach.endpoint)
        self.sender = Sender(reach.endpoint, reach.verify, connections)
        self.keys_refused = False
        """Whether the service answered that it does not take these keys at all."""

    def again(self) -> Any:
        """A client like this one over connections of its own, for a forked child."""
        made = copy(self)
        made.sender = self.sender.again()
        return made

    def _refusal(self, answer: Any, operation: str, protocol: str) -> Any:
        error: Any = _refused(answer, operation, protocol)
        self.keys_refused = self.keys_refused or refuses_keys(str(error.response["Error"].get("Code")))
        return error

    def close(self) -> None:
        """Close the connections that are idle."""
        self.sender.close()

    def _sent(self, asked: _Request, signer: Callable[..., SigV4Auth], region: str) -> StoreAnswer:
        """The answer to one request."""
        keys = self.reach.keys
        signable: Any = _Signable(asked)
        signer(keys.get_frozen_credentials() if keys else None, self.reach.service, region).add_auth(signable)
        headers: dict[str, str] = signable.headers
        if asked.method not in ("GET", "HEAD"):
            headers["Content-Length"] = str(len(asked.body))
        body = asked.body or None
        answer = self.sender.send(asked.method, asked.url, headers, body, in_parts=asked.in_parts)
        note_answer(answer)
        return answer


class _Signable:
    """A request as botocore's signers read and change it."""

    def __init__(self, asked: _Request) -> None:
        self.method, self.url, self.body = asked.method, asked.url, asked.body
        self.params: dict[str, str] = {}
        # Over https a body with its MD5 is not hashed again for the signature, as botocore has it for uploads.
        self.context: dict[str, Any] = {"has_streaming_input": asked.method == "PUT"}
        self.headers = {**asked.headers, "User-Agent": _AGENT}
        """By the names that botocore's signers ask for; its own type for headers looks for other spellings of each."""
        if trace := os.environ.get(
            "_X_AMZN_TRACE_ID"
        ):  # by which Lambda finds functions that start themselves
            self.headers["X-Amzn-Trace-Id"] = quote(trace, safe="-=;:+&[]{}\"',")


class SignedDynamoDB(_Signed):
    """Any operation of DynamoDB's, called as boto3's client calls it: ``put_item(TableName=...)``."""

    def __getattr__(self, name: str) -> Any:
        if name not in _OPERATIONS:
            raise AttributeError(name)
        operation = "".join(part.capitalize() for part in name.split("_"))

        def call(**given: Any) -> Any:
            return self._call(operation, given)

        return call

    def _call(self, operation: str, given: Mapping[str, Any]) -> Any:
        from botocore.auth import SigV4Auth

        headers = {
            "X-Amz-Target": f"DynamoDB_20120810.{operation}",
            "Content-Type": "application/x-amz-json-1.0",
        }
        if (
            operation == "TransactWriteItems"
        ):  # so that whoever sends the request again on its way does nothing again
            given = {**given, "ClientRequestToken": str(uuid.uuid4())}
        asked = _Request("POST", f"{self.reach.endpoint}/", headers, json.dumps(given).encode())
        answer = self._sent(asked, SigV4Auth, self.reach.region)
        if answer.status_code >= 300:
            raise self._refusal(answer, operation, "json")
        return _json_of(answer)


class SignedS3(_Signed):
    """The requests for objects; what else is asked, and buckets of other kinds, are a matter of boto3's client."""

    def __init__(self, reach: Reach, connections: int, other: Callable[[], Any]) -> None:
        super().__init__(reach, connections)
        self._other = cache(other)
        self._regions: dict[str, str] = {}
        """Regions of buckets that were not in ours."""

    def again(self) -> Any:
        """See the class above."""
        made = super().again()
        made._other = cache(self._other.__wrapped__)  # noqa: SLF001 - of the same class
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._other(), name)

    def put_object(self, **given: Any) -> dict[str, Any]:
        """As boto3's, for a body in memory."""
        if not is_usual(given["Bucket"]):
            return dict(self._other().put_object(**given))
        headers = {"Content-MD5": given["ContentMD5"]}
        if len(given["Body"]) > _EXPECT_BYTES:
            headers["Expect"] = "100-continue"
        if "IfNoneMatch" in given:
            headers["If-None-Match"] = given["IfNoneMatch"]
        for asked, name in _ENCRYPTION.items():
            if asked in given:
                headers[name] = given[asked] if isinstance(given[asked], str) else json.dumps(given[asked])
        answer = self._asked(
            "PutObject", given["Bucket"], _Request("PUT", _quoted(given["Key"]), headers, given["Body"])
        )
        _refuse_error_in(answer, "PutObject")
        found = answer.headers
        return _told(
            answer, ETag=found.get("ETag"), ServerSideEncryption=found.get("x-amz-server-side-encryption")
        )

    def get_object(self, **given: Any) -> dict[str, Any]:
        """As boto3's."""
        if not is_usual(given["Bucket"]):
            return dict(self._other().get_object(**given))

        headers = {"Range": given["Range"]} if "Range" in given else {}
        answer = self._asked(
            "GetObject", given["Bucket"], _Request("GET", _quoted(given["Key"]), headers, in_parts=True)
        )
        found = answer.headers
        return _told(
            answer,
            ETag=found.get("ETag"),
            ServerSideEncryption=found.get("x-amz-server-side-encryption"),
            ContentRange=found.get("Content-Range"),
            Body=_Body(answer.raw, found.get("content-length")),
        )

    def delete_object(self, **given: Any) -> dict[str, Any]:
        """As boto3's."""
        if not is_usual(given["Bucket"]):
            return dict(self._other().delete_object(**given))
        answer = self._asked("DeleteObject", given["Bucket"], _Request("DELETE", _quoted(given["Key"]), {}))
        _refuse_error_in(answer, "DeleteObject")
        return _told(answer)

    def delete_objects(self, **given: Any) -> dict[str, Any]:
        """As boto3's, for names without versions; the answer has those that stay."""
        if not is_usual(given["Bucket"]):
            return dict(self._other().delete_objects(**given))
        names = "".join(
            f"<Object><Key>{_in_xml(one['Key'])}</Key></Object>" for one in given["Delete"]["Objects"]
        )
        body = f'<Delete xmlns="{_XML_OF_S3}">{names}<Quiet>true</Quiet></Delete>'.encode()
        digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        headers = {"Content-MD5": digest, "Content-Type": "application/xml"}
        slash = "" if self.reach.in_path(given["Bucket"]) else "/"
        answer = self._asked(
            "DeleteObjects", given["Bucket"], _Request("POST", f"{slash}?delete", headers, body)
        )
        root = _refuse_error_in(answer, "DeleteObjects")
        errors = [] if root is None else [one for one in root if one.tag.rpartition("}")[2] == "Error"]
        told = [{part.tag.rpartition("}")[2]: part.text or "" for part in one} for one in errors]
        return _told(answer, Errors=told or None)

    def list_objects_v2(self, **given: Any) -> dict[str, Any]:
        """As boto3's, with what the stores read of a listing."""
        if not is_usual(given["Bucket"]):
            return dict(self._other().list_objects_v2(**given))
        names = {
            "Prefix": "prefix", "StartAfter": "start-after", "MaxKeys": "max-keys", "ContinuationToken": "continuation-token"
        }  # fmt: skip
        query = {names[name]: value for name, value in given.items() if name != "Bucket"}
        spelled = urlencode(
            {"list-type": "2"} | query | {"encoding-type": "url"}, quote_via=quote, safe="-._~"
        )
        slash = "" if self.reach.in_path(given["Bucket"]) else "/"
        answer = self._asked("ListObjectsV2", given["Bucket"], _Request("GET", f"{slash}?{spelled}", {}))
        root = _refuse_error_in(answer, "ListObjectsV2")
        if root is None:
            from botocore.parsers import ResponseParserError

            raise ResponseParserError("the answer to ListObjectsV2 is empty")
        return _told(answer, **_listing(root))

    def _asked(self, operation: str, bucket: str, asked: _Request) -> StoreAnswer:
        """The answer to a request, whose address is given without the bucket's.

        A bucket of another region is asked there, once: the request has done nothing here.
        """
        from botocore.auth import S3SigV4Auth

        region, moved = self._regions.get(bucket, self.reach.region), False
        while True:
            url = self.reach.url_of(bucket, region) + asked.url
            answer = self._sent(asked._replace(url=url), S3SigV4Auth, region)
            if answer.status_code < 300:
                return answer
            error = self._refusal(answer, operation, "rest-xml")
            elsewhere = None if moved else self._region_told(error, bucket, region)
            if elsewhere is None:
                raise error
            region, moved = elsewhere, True
            self._regions[bucket] = region

    def _region_told(self, error: Any, bucket: str, region: str) -> str | None:
        """The bucket's region, where an answer says that it is another one."""
        from botocore.auth import S3SigV4Auth
        from botocore.exceptions import InvalidRegionError
        from botocore.utils import validate_region_name

        told, about = error.response["Error"], error.response["ResponseMetadata"]
        is_moved = about["HTTPStatusCode"] in (301, 302, 307) or told.get("Code") in _MOVED
        if not is_moved and not (told.get("Code") == "AuthorizationHeaderMalformed" and "Region" in told):
            return None
        found = about["HTTPHeaders"].get("x-amz-bucket-region") or told.get("Region")
        if found is None:
            head = _Request("HEAD", self.reach.url_of(bucket, region), {})
            answer = self._sent(head, S3SigV4Auth, region)
            found = answer.headers.get("x-amz-bucket-region")
        try:
            validate_region_name(found)
        except InvalidRegionError:
            return None
        return None if found is None else str(found)


def _in_xml(key: str) -> str:
    """A name as the text of an XML element; what XML 1.0 cannot hold stands as a reference, as botocore writes it."""
    from xml.sax.saxutils import escape

    return escape(key, {"\r": "&#xD;", "\n": "&#xA;"})


def _quoted(key: str) -> str:
    return "/" + quote(key, safe="/-._~")


def _told(answer: Any, **found: Any) -> dict[str, Any]:
    """What a client of boto3's returns: what was found in the answer, and the answer's headers."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    about = {"HTTPStatusCode": answer.status_code, "HTTPHeaders": headers}
    return {name: value for name, value in found.items() if value is not None} | {"ResponseMetadata": about}


def _json_of(answer: Any) -> Any:
    """The JSON object of an answer; one that was cut short is none."""
    content, length = answer.content, answer.headers.get("content-length")
    _check_length(content, length)
    if length == "0":
        return {}
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        from botocore.parsers import ResponseParserError

        raise ResponseParserError(f"the answer is no JSON object: {content[:200]!r}")
    return found


class _Body:
    """The body of an answer, read once and whole; it says what botocore's says where it breaks off."""

    def __init__(self, raw: Any, length: str | None) -> None:
        self._raw, self._length = raw, length

    def read(self) -> bytes:
        """All of it."""
        from urllib3.exceptions import ProtocolError, ReadTimeoutError

        try:
            content: bytes = self._raw.read()
        except (ReadTimeoutError, ProtocolError) as error:
            from botocore import exceptions

            if isinstance(error, ProtocolError):
                raise exceptions.ResponseStreamingError(error=error) from error
            raise exceptions.ReadTimeoutError(endpoint_url=str(error.url), error=error) from error
        _check_length(content, self._length)
        return content


def _check_length(content: bytes, length: str | None) -> None:
    """Raise where an answer is shorter than its head says; urllib3 is told not to look, for botocore does."""
    if length is not None and int(length) != len(content):
        from botocore.exceptions import IncompleteReadError

        raise IncompleteReadError(actual_bytes=len(content), expected_bytes=int(length))


def _refused(answer: Any, operation: str, protocol: str, *, status: int | None = None) -> Exception:
    """The exception for an answer that is a refusal, as botocore's own parser reads it."""
    from botocore.exceptions import ClientError
    from botocore.parsers import create_parser

    response = {
        "headers": answer.headers,
        "status_code": status or answer.status_code,
        "body": answer.content,
    }
    parser: Any = create_parser(protocol)
    parsed = parser.parse(response, None)
    if parsed["Error"]["Code"] == "TransactionCanceledException":
        parsed["CancellationReasons"] = json.loads(answer.content).get("CancellationReasons", [])
    return ClientError(parsed, operation)


def _refuse_error_in(answer: Any, operation: str) -> Any:
    """The XML of an answer, None where it has none; S3 may say 200, and tell of an error, or break off, in the body."""
    if not answer.content:
        return None
    from xml.etree import ElementTree

    try:
        root = ElementTree.fromstring(answer.content)
    except ElementTree.ParseError:
        root = None
    if root is None or root.tag == "Error":
        raise _refused(answer, operation, "rest-xml", status=500)
    return root


def _listing(root: Any) -> dict[str, Any]:
    from urllib.parse import unquote_plus

    def text(node: Any, name: str) -> str:
        found = next((part.text for part in node if part.tag.rpartition("}")[2] == name), None)
        return found or ""

    plain = unquote_plus if text(root, "EncodingType") == "url" else str
    contents = [
        {
            "Key": plain(text(one, "Key")),
            "Size": int(text(one, "Size")),
            "LastModified": datetime.fromisoformat(text(one, "LastModified")),
            "ETag": text(one, "ETag"),
        }
        for one in root
        if one.tag.rpartition("}")[2] == "Contents"
    ]
    token = text(root, "NextContinuationToken")
    return {
        "Contents": contents,
        "IsTruncated": text(root, "IsTruncated").lower() == "true",
        **({"NextContinuationToken": token} if token else {}),
    }
