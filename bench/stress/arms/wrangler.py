"""Writer: awswrangler as its users call it, with the lock table that they believe in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import common  # noqa: E402  (a script in a foreign environment: the path comes first)


def main() -> None:
    """Append by ``wr.s3.to_deltalake`` until the plan is done."""
    config = common.read_config()
    writer = common.Writer(config)
    import awswrangler as wr

    options = config["storage_options"]
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
