"""Writes with awswrangler as its users call it, with the lock table that they trust."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import common


def main() -> None:
    """Append by ``wr.s3.to_deltalake`` until the plan is done."""
    config = common.read_config()
    writer = common.Writer(config)
    options = config["storage_options"]
    # awswrangler takes credentials and region from boto3's default session, that is the environment.
    os.environ.update({name: options[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")})
    os.environ["AWS_DEFAULT_REGION"] = options["AWS_REGION"]
    import awswrangler as wr

    wr.config.s3_endpoint_url = options["AWS_ENDPOINT_URL"]
    wr.config.dynamodb_endpoint_url = options["AWS_ENDPOINT_URL_DYNAMODB"]

    def append(rows: list[Any], key: str | None) -> dict[str, Any]:
        frame = common.to_arrow(rows).to_pandas()
        wr.s3.to_deltalake(
            df=frame,
            path=config["table"],
            mode="append",
            partition_cols=["day"],
            lock_dynamodb_table=config["lock_table"],
            s3_additional_kwargs={"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": options["AWS_ENDPOINT_URL"]},
        )
        return {}

    writer.run(append)


main()
