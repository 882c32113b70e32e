"""Reads and writes objects of one table in S3, or in any store that speaks its API honestly."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from safewrite.protocol.effects import PROVED, Busy, Missing, Ok, Outcome, Unknown
from safewrite.protocol.values import Listed, Tail
from safewrite.stores import call_limit
from safewrite.stores.aws import ServerClock, classify_error, is_empty

EMPTY_PAGES_MAX = 100
"""How many pages of a listing may be empty one after another; S3 may answer with a few, a broken store with no end."""


class S3Objects:
    """Objects under ``s3://bucket/prefix``; conditional creates go by ``If-None-Match: *``.

    Every upload carries its MD5: S3 refuses a damaged body, and where a store ignores the MD5, the ETag that
    comes back shows the damage (G5).  Once an upload has shown that the store's ETags are MD5s, whole reads
    are checked by them too.  ``encryption`` is what each upload asks for, as arguments of ``put_object``.
    """

    deletes_max = 1000

    def __init__(
        self,
        client: Any,
        bucket: str,
        prefix: str,
        *,
        clock: ServerClock | None = None,
        encryption: Mapping[str, Any] | None = None,
    ) -> None:
        self.client = client
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        self.root = f"s3://{bucket}/{self.prefix}" if self.prefix else f"s3://{bucket}"
        self.clock = clock or ServerClock()
        self._base = f"{self.prefix}/" if self.prefix else ""
        self._etags_are_md5 = False
        self._encryption = dict(encryption or {})

    def get(self, path: str) -> Outcome:
        return self._read(path)

    def get_lasting(self, path: str) -> Outcome:
        """As ``get``; ``Missing`` also where a rule of the bucket is about to remove the object: S3 does so some time later."""
        headers: dict[str, str] = {}
        outcome = self._read(path, headers=headers)
        if "x-amz-expiration" in headers:
            from safewrite.stores import lifecycle

            if lifecycle.is_leaving(headers):
                return Missing()
        return outcome

    def get_range(self, path: str, start: int, length: int) -> Outcome:
        return self._read(path, f"bytes={start}-{start + length - 1}")

    def get_tail(self, path: str, length: int) -> Outcome:
        try:
            answer = self.client.get_object(
                Bucket=self.bucket, Key=self._base + path, Range=f"bytes=-{length}"
            )
            data = answer["Body"].read()
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            # An empty object has no range: there is nothing at its end.
            return Ok(Tail(0, b"")) if is_empty(error) else classify_error(error, write=False)
        # A store that ignores the range answers with everything and no Content-Range.
        total = answer.get("ContentRange", "").rpartition("/")[2]
        return Ok(Tail(int(total) if total.isdigit() else len(data), data[-length:]))

    def list(self, prefix: str, start_after: str, limit: int) -> Outcome:
        found: list[Listed] = []
        empty = 0
        request: dict[str, Any] = {"Bucket": self.bucket, "Prefix": self._base + prefix}
        if start_after:
            request["StartAfter"] = self._base + start_after
        if limit:
            request["MaxKeys"] = limit
        try:
            while True:
                call_limit.check()
                page = self.client.list_objects_v2(**request)
                began = len(found)
                for item in page.get("Contents", ()):
                    modified_ms = int(item["LastModified"].timestamp() * 1000)
                    path, etag = item["Key"].removeprefix(self._base), item.get("ETag", "").strip('"')
                    found.append(Listed(path, item["Size"], modified_ms, etag))
                empty = empty + 1 if began == len(found) else 0
                if empty > EMPTY_PAGES_MAX or (
                    began and not empty and found[began].path <= found[began - 1].path
                ):
                    return Unknown("the listing does not advance: its pages repeat, or stay empty")
                if (limit and len(found) >= limit) or not page.get("IsTruncated"):
                    return Ok(tuple(found))
                request["ContinuationToken"] = page["NextContinuationToken"]
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            outcome = classify_error(error, write=False)
            return Unknown("no such bucket or prefix") if isinstance(outcome, Missing) else outcome

    def put(self, path: str, body: bytes) -> Outcome:
        return self._write(path, body, {})

    def put_if_absent(self, path: str, body: bytes) -> Outcome:
        return self._write(path, body, {"IfNoneMatch": "*"})

    def delete(self, path: str) -> Outcome:
        try:
            self.client.delete_object(Bucket=self.bucket, Key=self._base + path)
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return classify_error(error, write=True)
        return Ok()

    def delete_many(self, paths: Sequence[str]) -> tuple[Outcome, ...]:
        """See :class:`safewrite.stores.abc.BatchObjects`; the answer names those that stay, and why (S3 API, DeleteObjects)."""
        keys = [self._base + path for path in paths]
        asked = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            answer = self.client.delete_objects(Bucket=self.bucket, Delete=asked)
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return (classify_error(error, write=True),) * len(keys)
        stay = {one["Key"]: _why_it_stays(one) for one in answer.get("Errors", ())}
        return tuple(stay.get(key, Ok()) for key in keys)

    def _read(
        self, path: str, byte_range: str | None = None, *, headers: dict[str, str] | None = None
    ) -> Outcome:
        extra = {"Range": byte_range} if byte_range else {}
        try:
            answer = self.client.get_object(Bucket=self.bucket, Key=self._base + path, **extra)
            body: bytes = answer["Body"].read()
            if headers is not None:
                headers.update(answer["ResponseMetadata"]["HTTPHeaders"])
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return Ok(b"") if byte_range and is_empty(error) else classify_error(error, write=False)
        etag = _md5_of(answer)
        if byte_range is None and self._etags_are_md5 and etag not in (None, _hex(body)):
            # Half a commit file read back would look like another writer's (A19, G5).
            return Unknown(f"{path} was damaged on its way here")
        return Ok(body)

    def _write(self, path: str, body: bytes, condition: dict[str, str]) -> Outcome:
        digest = hashlib.md5(body, usedforsecurity=False)
        try:
            answer = self.client.put_object(
                Bucket=self.bucket,
                Key=self._base + path,
                Body=body,
                ContentMD5=_base64(digest),
                **condition,
                **self._encryption,
            )
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return classify_error(error, write=True)
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        self.clock.observe(headers)
        if "x-amz-expiration" in headers:
            from safewrite.stores import lifecycle

            lifecycle.warn(headers, self.root, path)
        etag = _md5_of(answer)
        self._etags_are_md5 = self._etags_are_md5 or etag == digest.hexdigest()
        if etag not in (None, digest.hexdigest()):
            # The object is not what was sent: a data file is sent again, a commit is read back.
            return Unknown(f"{path} was damaged on its way") if condition else Busy(f"{path} was damaged")
        return Ok(None if etag is None else PROVED)


def _md5_of(answer: dict[str, Any]) -> str | None:
    """The MD5 in the ETag of a plain upload; None for a multipart or a KMS-encrypted one."""
    etag = str(answer.get("ETag", "")).strip('"')
    plain = len(etag) == 32 and "aws:kms" not in str(answer.get("ServerSideEncryption", ""))
    return etag if plain else None


def _hex(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def _base64(digest: Any) -> str:
    import base64

    return base64.b64encode(digest.digest()).decode()


def _why_it_stays(told: Mapping[str, str]) -> Outcome:
    """What an answer to a request for many says of one of them, which has no status of its own."""
    from botocore.exceptions import ClientError

    status = 403 if told.get("Code") == "AccessDenied" else 500
    about: Any = {"Error": dict(told), "ResponseMetadata": {"HTTPStatusCode": status}}
    return classify_error(ClientError(about, "DeleteObjects"), write=True)
