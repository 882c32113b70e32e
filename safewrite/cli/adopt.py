"""Runs the command adopt: a copy of a table becomes one of its own."""

from __future__ import annotations

import safewrite
from safewrite.arguments.options import parse_address
from safewrite.cli.shared import DryRun, Screen, show_steps
from safewrite.cli.target import Target, on_table
from safewrite.errors import InvalidInputError


@on_table
def adopt(screen: Screen, target: Target, *, dry_run: DryRun = False) -> None:
    """Make a copy of a Delta table one of its own, which the arbiter of its new address guards.

    For a local table that was copied to S3 (name --lock-table, or --arbiter object-store), and for a table of S3 that
    was copied to a local disk.  It records the keys that the log has in the ledger there, then the arbiter in the table.
    Stop the writers of the copy meanwhile; the original is not touched.
    """
    from safewrite.delta.connect import connect
    from safewrite.delta.maintenance.adopt import adopt as adopted

    with screen.errors():
        if target.catalog is not None:
            raise InvalidInputError(
                "An Iceberg table's arbiter is its catalog: register the table there. Nothing was written. Give the address "
                "of a Delta table, without --catalog."
            )
        if parse_address(target.table).is_s3 and target.lock_table is None and target.arbiter is None:
            raise InvalidInputError(
                "The table is to get an arbiter, and none was named. Nothing was written. Name --lock-table, or --arbiter "
                "object-store if no writer uses a lock table."
            )
        connection = connect(
            target.table, lock_table=target.lock_table, arbiter=target.arbiter, storage_options=target.options,
            boto3_session=None,
        )  # fmt: skip
        steps = list(adopted(connection, engine_version=safewrite.__version__, dry_run=dry_run))
    nothing = f"Nothing to adopt: the arbiter of this table is {connection.arbiter_name} already."
    show_steps(screen, connection.address.uri, steps, nothing)
