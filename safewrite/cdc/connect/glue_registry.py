"""Asks AWS Glue's schema registry for schemas by the ids of their versions, and asks again while it is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import safewrite as sw
from safewrite.cdc.connect.known_schemas import SchemaId
from safewrite.cdc.connect.registry import AwayError, patiently
from safewrite.cdc.records.change import UndecodableError
from safewrite.surroundings import Surroundings, surroundings

_UNKNOWN = frozenset({"EntityNotFoundException", "InvalidInputException"})
_DENIED = frozenset(
    {
        "AccessDeniedException",
        "UnrecognizedClientException",
        "ExpiredTokenException",
        "InvalidSignatureException",
    }
)


@dataclass(frozen=True)
class GlueRegistry:
    """Calls give the text of a schema.  Credentials are those of AWS's own client, wherever it runs.

    Args:
        patience_s: how long it may be away before the batch fails.  A batch that fails is read again.
    """

    region: str
    timeout_s: float = 10.0
    patience_s: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    client: Any = field(default=None, repr=False)
    """In the place of AWS's client."""

    def __call__(self, number: SchemaId) -> str:
        """The schema of this version.

        Raises:
            UndecodableError: the registry does not know the id, or it is not Avro.
            StorageError: no answer within ``patience_s``, or no access.
        """
        if isinstance(number, int):
            raise UndecodableError(
                "the bytes are behind the header of a Confluent registry, and the job's is AWS Glue's"
            )
        who = f"AWS Glue's schema registry in {self.region}"
        answer = patiently(
            lambda: self._once(number, who), self.patience_s, self.sleep, who, f"the schema {number}"
        )
        if answer.get("DataFormat") != "AVRO":
            raise UndecodableError(f"schema {number} of the registry is {answer.get('DataFormat')}, not Avro")
        return str(answer["SchemaDefinition"])

    def _once(self, number: str, who: str) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        client = self.client or _client(self.region, self.timeout_s, surroundings())
        try:
            return dict(client.get_schema_version(SchemaVersionId=number))
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in _UNKNOWN:
                raise UndecodableError(f"the registry does not know schema {number}") from error
            if code in _DENIED:
                raise _refused(who, error) from error
            raise AwayError(str(error)) from error
        except NoCredentialsError as error:
            raise _refused(who, error) from error
        except BotoCoreError as error:
            raise AwayError(f"{type(error).__name__}: {error}") from error


def _refused(who: str, error: Exception) -> sw.StorageError:
    return sw.StorageError(
        f"{who} refuses the job ({error}). Nothing of this batch was written. Give its role glue:GetSchemaVersion, and credentials "
        "where the records are decoded."
    )


@lru_cache(16)
def _client(region: str, timeout_s: float, around: Surroundings) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(connect_timeout=timeout_s, read_timeout=timeout_s, retries={"total_max_attempts": 1})
    return boto3.Session().client("glue", region_name=region, config=config)
