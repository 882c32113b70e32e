"""Asks a Confluent schema registry for schemas by their ids, of Avro or Protobuf, and asks again while it is away."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Literal, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

import safewrite as sw
from safewrite.cdc.connect.known_schemas import SchemaId
from safewrite.cdc.connect.redirects import opener, origin
from safewrite.cdc.records.change import UndecodableError

log = logging.getLogger("safewrite")
_T = TypeVar("_T")

_ANSWER_BYTES_MAX = 16 * 1024 * 1024
_SERIALIZED = "?format=serialized"
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_NOT_FOUND = frozenset({40401, 40402, 40403})
"""The registry's own codes for a subject, a version and a schema that it does not have.  A 404 without one of them comes
from something else at its address (a gateway, a wrong path), and says nothing about the schema."""


class AwayError(Exception):
    """The registry gave no answer that says anything about the schema."""


def patiently(
    ask: Callable[[], _T], patience_s: float, sleep: Callable[[float], None], who: str, what: str
) -> _T:
    """The answer to a question; it is asked again while the registry is away.

    Raises:
        StorageError: it was away for so long.
    """

    def tell(state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        left_s = max(0.0, patience_s - (state.seconds_since_start or 0.0))
        log.warning(
            "%s gives no answer about %s (%s). The batch waits, nothing of it is written; the registry is "
            "asked again for %.0f s more.", who, what, error, left_s,
        )  # fmt: skip

    again = Retrying(
        retry=retry_if_exception_type(AwayError),
        stop=stop_after_delay(patience_s),
        wait=wait_random_exponential(multiplier=0.2, max=10),
        sleep=sleep,
        before_sleep=tell,
        reraise=True,
    )
    try:
        return again(ask)
    except AwayError as error:
        raise sw.StorageError(
            f"{who} gave no answer about {what} for {patience_s:g} s ({error}). Nothing of "
            "this batch was written; it is read again when the job starts. See whether the registry can be reached."
        ) from error


@dataclass(frozen=True)
class Registry:
    """Calls give the text of a schema, its references put in; of Protobuf a JSON list of files, the schema's own last.

    Args:
        url: ``http(s)://host:port``, with a path where the registry has one.
        user, password: for HTTP's basic authentication; Confluent Cloud's API key and secret.
        patience_s: how long it may be away before the batch fails.  A batch that fails is read again.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout_s: float = 10.0
    patience_s: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    form: Literal["AVRO", "PROTOBUF"] = "AVRO"

    def __post_init__(self) -> None:
        if "@" in self.url:
            raise sw.InvalidInputError(
                "The address of the schema registry has a user or a password in it, and it stands in logs. Nothing was read or "
                "written. Give them as registry.user and registry.password."
            )

    def __call__(self, number: SchemaId) -> str:
        """The schema with this id.

        Raises:
            UndecodableError: the registry does not know the id, or its schema is of another form.
            StorageError: no answer within ``patience_s``, or no access.
        """
        if isinstance(number, str):
            raise UndecodableError(
                "the bytes are behind the header of AWS Glue, and the job's registry is Confluent's"
            )
        what, is_avro = f"schema {number}", self.form == "AVRO"
        answer = self._ask(f"/schemas/ids/{number}{'' if is_avro else _SERIALIZED}", what)
        if (form := answer.get("schemaType", "AVRO")) != self.form:
            raise UndecodableError(f"{what} of the registry is {form}, not {self.form.capitalize()}")
        try:
            return (
                self._with_references(answer, what) if is_avro else json.dumps([*self._files(answer, what)])
            )
        except RecursionError as error:
            raise UndecodableError(
                f"schema {number} of the registry refers to itself, or is nested too deeply"
            ) from error

    def _files(self, answer: Mapping[str, Any], name: str) -> Iterator[tuple[str, str]]:
        """The files of a schema of Protobuf, those that it refers to first: their names and descriptors."""
        for one in answer.get("references") or ():
            path = f"/subjects/{quote(str(one['subject']), safe='')}/versions/{one['version']}{_SERIALIZED}"
            inner = self._ask(path, f"the reference {one['name']} of {name}")
            yield from self._files(inner, str(one["name"]))
        text = str(answer["schema"])
        if _BASE64.fullmatch(text) is None:
            raise sw.StorageError(
                f"The schema registry at {self.url} answers with the text of {name}, and not with its descriptor (format=serialized), as "
                "Confluent's and Redpanda's from 25.2 on do. Nothing of this batch was written. Use one that does, or records in Avro."
            )
        yield name, text

    def _with_references(self, answer: Mapping[str, Any], what: str) -> str:
        """The schema with what it refers to defined in place, at the first mention."""
        found: dict[str, Any] = {}
        for one in answer.get("references") or ():
            path = f"/subjects/{quote(str(one['subject']), safe='')}/versions/{one['version']}"
            inner = self._ask(path, f"the reference {one['name']} of {what}")
            found[str(one["name"])] = json.loads(self._with_references(inner, str(one["name"])))
        text = str(answer["schema"])
        return text if not found else json.dumps(_defined(json.loads(text), found))

    def _ask(self, path: str, what: str) -> dict[str, Any]:
        who = f"The schema registry at {self.url}"
        return patiently(lambda: self._once(path, what), self.patience_s, self.sleep, who, what)

    def _once(self, path: str, what: str) -> dict[str, Any]:
        request = Request(
            self.url.rstrip("/") + path, headers={"Accept": "application/vnd.schemaregistry.v1+json"}
        )
        if self.user is not None:
            coded = base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
            request.add_header("Authorization", f"Basic {coded}")
        try:
            with opener(self.url).open(request, timeout=self.timeout_s) as answer:
                content = json.loads(answer.read(_ANSWER_BYTES_MAX))
        except HTTPError as error:
            told = _error_code(error)
            if error.code == HTTPStatus.NOT_FOUND and told in _NOT_FOUND:
                raise UndecodableError(f"the registry does not know {what}") from error
            if error.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise sw.StorageError(
                    f"The schema registry at {self.url} answers {error.code} about {what}. Nothing of this batch was written. "
                    + self._advice(error)
                ) from error
            why = f": {error.reason}" if error.code // 100 == 3 else ""
            if error.code == HTTPStatus.NOT_FOUND:
                why = ", and no schema registry says so: is registry.url right?"
            raise AwayError(f"HTTP {error.code}{why}") from error
        except (URLError, OSError, ValueError, HTTPException, RecursionError) as error:
            # An answer that breaks off, that is no HTTP, or JSON that nobody means: of a proxy, or of a server that ends.
            raise AwayError(f"{type(error).__name__}: {error}") from error
        if not _is_answer(content):
            raise AwayError("an answer without a schema")
        return dict(content)

    def _advice(self, refused: HTTPError) -> str:
        """What to do about an answer that denies access."""
        asked = origin(refused.url or self.url)
        if self.user is not None and asked != origin(self.url):
            return (
                f"The registry redirected to {asked}, and the password goes to no other origin than {origin(self.url)}. If that address is "
                "the registry's own, set registry.url to it."
            )
        return "Correct registry.user and the password."


def _is_answer(content: Any) -> bool:
    """Whether an answer has what a registry's has: a schema, and what it refers to."""
    if not isinstance(content, dict) or not isinstance(content.get("schema"), str):
        return False
    listed = content.get("references") or []
    return isinstance(listed, list) and all(
        isinstance(one, dict) and {"name", "subject", "version"} <= set(one) for one in listed
    )


def _error_code(error: HTTPError) -> int | None:
    """The registry's own code in the body of an error."""
    with error:
        try:
            content = json.loads(error.read(_ANSWER_BYTES_MAX))
        except (OSError, ValueError, HTTPException, RecursionError):
            return None
    return content.get("error_code") if isinstance(content, dict) else None


def _defined(schema: Any, found: dict[str, Any]) -> Any:
    if isinstance(schema, str):
        return found.pop(schema, schema)
    if isinstance(schema, list):
        return [_defined(one, found) for one in schema]
    if isinstance(schema, dict):
        return {
            name: _defined(value, found) if name in {"type", "items", "values", "fields"} else value
            for name, value in schema.items()
        }
    return schema
