"""Runs the command fast-forward: the main branch of an Iceberg table moves to an audited branch."""

from __future__ import annotations

from typing import Annotated

import typer

from safewrite.cli.shared import Screen
from safewrite.cli.target import Target, on_table
from safewrite.errors import InvalidInputError


@on_table
def fast_forward(
    screen: Screen,
    target: Target,
    *,
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            metavar="SNAPSHOT",
            help="The snapshot that was audited; it is refused if the branch has moved since (default: the newest).",
        ),
    ] = None,
) -> None:
    """Move the main branch of an Iceberg table to a branch, in one commit: readers then see the rows that were audited.

    Exits with 1 if it may have landed: the same command decides.
    """
    with screen.errors():
        if target.catalog is None or target.branch is None:
            raise InvalidInputError(
                "A fast-forward is of a branch of an Iceberg table. Nothing was written. Name the branch with --branch and the catalog "
                "with --catalog."
            )
        from safewrite.iceberg.format import IcebergFormat
        from safewrite.iceberg.table import IcebergTable

        receipt = IcebergTable(IcebergFormat(target.connect())).refresh().fast_forward(version)
    text = f"{receipt.outcome.value}: main is at snapshot {receipt.version} of {target.branch}"
    screen.show(receipt.to_dict(), lambda console: console.print(text, highlight=False))
