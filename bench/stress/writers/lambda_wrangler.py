"""Appends SQS messages by awswrangler, with the lock table that its users trust: the handler of a Lambda function."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import awswrangler as wr
import lambda_common

config = lambda_common.read_config()
options = config["storage_options"]
# awswrangler takes credentials from boto3's default session, that is the environment.
os.environ.update({name: options[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")})
wr.config.s3_endpoint_url = options["AWS_ENDPOINT_URL"]
wr.config.dynamodb_endpoint_url = options["AWS_ENDPOINT_URL_DYNAMODB"]
traps = lambda_common.Traps(config["traps_folder"])


def write_batch(members: list[lambda_common.Member]) -> list[Exception | None]:
    """The error of each member, if it had one; a commit for each."""
    return [_append(frame) for _, frame in members]


def _append(frame: Any) -> Exception | None:
    try:
        wr.s3.to_deltalake(
            df=frame.to_pandas(),
            path=config["table"],
            mode="append",
            partition_cols=["day"],
            lock_dynamodb_table=config["lock_table"],
            s3_additional_kwargs={"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": options["AWS_ENDPOINT_URL"]},
        )
    except Exception as error:  # noqa: BLE001 - a failed message is reported, whatever its error
        return error
    return None


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer with the messages that failed."""
    return lambda_common.answer(event, traps, write_batch)
