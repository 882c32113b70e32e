"""Appends the rows of SQS messages by awswrangler, with its lock table: the handler of a Lambda function.

``each`` makes a commit for each message, so that a message fails alone; else a batch is one frame and one
commit, and fails as one.
"""

from __future__ import annotations

import json
import os
from typing import Any

_config = json.loads(os.environ["BENCH_FUNCTION"])
_options = _config["storage_options"]
# awswrangler takes credentials from boto3's default session, that is the environment.
os.environ.update({name: _options[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")})

import awswrangler as wr  # noqa: E402
import pandas as pd  # noqa: E402

wr.config.s3_endpoint_url = _options["AWS_ENDPOINT_URL"]
wr.config.dynamodb_endpoint_url = _options["AWS_ENDPOINT_URL_DYNAMODB"]


def _append(rows: list[dict[str, Any]]) -> None:
    wr.s3.to_deltalake(
        df=pd.DataFrame(rows),
        path=_config["uri"],
        mode="append",
        lock_dynamodb_table=_config["lock_table"],
        s3_additional_kwargs={"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": _options["AWS_ENDPOINT_URL"]},
    )


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer with the messages that failed."""
    bodies = {record["messageId"]: json.loads(record["body"]) for record in event["Records"]}
    if not _config["each"]:
        _append([row for rows in bodies.values() for row in rows])
        return {"batchItemFailures": []}
    failed = []
    for message_id, rows in bodies.items():
        try:
            _append(rows)
        except Exception as error:  # noqa: BLE001 - a failed message is reported, whatever its error
            print(f"{message_id}: {error}")
            failed.append({"itemIdentifier": message_id})
    return {"batchItemFailures": failed}
