"""Finds the table that a command is about, from arguments that all table commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from safewrite.arguments.options import ArbiterName
from safewrite.cli.shared import (
    Endpoint,
    LockTable,
    OutputOption,
    Region,
    Screen,
    StorageOption,
    connect_to,
    options_of,
    pairs,
)
from safewrite.errors import InvalidInputError

if TYPE_CHECKING:
    from safewrite.iceberg.connect import Connection
    from safewrite.table.verbs import Table

TableArg = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="s3://bucket/path or a local path; db.table for Iceberg, with --catalog."
    ),
]
ArbiterOption = Annotated[
    str | None,
    typer.Option(
        "--arbiter",
        envvar="SAFEWRITE_ARBITER",
        help="Delta: dynamodb or object-store (default: as recorded).",
    ),
]
CatalogOption = Annotated[
    str | None,
    typer.Option(
        "--catalog", metavar="NAME", envvar="SAFEWRITE_CATALOG",
        help="Iceberg: the name of a catalog in PyIceberg's configuration.",
    ),
]  # fmt: skip
CatalogProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-property", metavar="KEY=VALUE", envvar="SAFEWRITE_CATALOG_PROPERTY",
        help="Iceberg: a property of the catalog, such as type=rest or uri=...; may be repeated.",
    ),
]  # fmt: skip
BranchOption = Annotated[
    str | None,
    typer.Option("--branch", envvar="SAFEWRITE_BRANCH", help="Iceberg: the branch (default: main)."),
]


@dataclass(frozen=True, slots=True)
class Target:
    """A table, and how it is reached.  ``catalog`` (properties, and the name) makes it an Iceberg table."""

    table: str
    lock_table: str | None
    arbiter: str | None
    options: Mapping[str, str]
    catalog: Mapping[str, str] | None
    branch: str | None = None

    def look(self) -> Connection:
        """Connect to an Iceberg table in order to read.  Raises as ``safewrite.open`` does."""
        from safewrite.iceberg.connect import look

        return self._on_branch(
            look(self.table, self.catalog, lock_table=self.lock_table, storage_options=self.options)
        )

    def connect(self) -> Connection:
        """Connect to an Iceberg table in order to write.  Raises as ``safewrite.open`` does."""
        from safewrite.iceberg.connect import connect

        return self._on_branch(
            connect(self.table, self.catalog, lock_table=self.lock_table, storage_options=self.options)
        )

    def open(self) -> Table:
        """The table, as a writer opens it.  Raises as ``safewrite.open`` does."""
        import safewrite

        if self.catalog is not None:
            return safewrite.open(
                self.table,
                catalog=dict(self.catalog),
                branch=self.branch,
                lock_table=self.lock_table,
                storage_options=self.options,
            )
        found = connect_to(self.table, self.lock_table, self.arbiter, self.options)
        return safewrite.open(
            self.table,
            lock_table=found.lock_table,
            arbiter=cast("Any", found.arbiter_name),
            storage_options=self.options,
        )

    def _on_branch(self, connection: Connection) -> Connection:
        return connection if self.branch is None else replace(connection, branch=self.branch)

    def refuse(self, *options: str) -> None:
        """Raise InvalidInputError if one of these options, which are for the other format, was given."""
        if options:
            here, there = ("an Iceberg", "Delta") if self.catalog is not None else ("a Delta", "Iceberg")
            raise InvalidInputError(
                f"{', '.join(options)}: for {there} tables only, and {self.table} is meant as {here} table "
                f"({'with' if self.catalog is not None else 'without'} --catalog). Nothing was written."
            )


def _shared(
    context: typer.Context,
    table: TableArg,
    *,
    catalog: CatalogOption = None,
    catalog_property: CatalogProperty = None,
    branch: BranchOption = None,
    lock_table: LockTable = None,
    arbiter: ArbiterOption = None,
    endpoint_url: Endpoint = None,
    region: Region = None,
    storage_option: StorageOption = None,
    output: OutputOption = None,
) -> tuple[Screen, Target]:
    """Stand for every table command; its parameters become theirs."""
    screen = Screen(context, output)
    named = None
    if catalog or catalog_property:
        named = pairs(catalog_property, "--catalog-property") | ({"name": catalog} if catalog else {})
    with screen.errors():
        options = options_of(endpoint_url, region, storage_option)
        target = Target(table, lock_table, arbiter, options, named, branch)
        if named is None and branch is not None:
            target.refuse("--branch")
        if named is not None and arbiter is not None:
            target.refuse("--arbiter")
        if arbiter not in (None, *get_args(ArbiterName)):
            raise InvalidInputError(
                f"--arbiter {arbiter!r} is not known. Nothing was written. Use dynamodb or object-store, or leave it out: the "
                "table has it on record."
            )
    return screen, target


def on_table(command: Callable[..., None], *, required: bool = True) -> Callable[..., None]:
    """Give a command the shared arguments and options; it is called with a screen, a target and its own.

    A command that can do without a table gets a target whose ``table`` is empty.
    """
    shared = dict(inspect.signature(_shared, eval_str=True).parameters)
    if not required:
        shared["table"] = shared["table"].replace(default="")
    _, _, *own = inspect.signature(command, eval_str=True).parameters.values()

    def run(**given: Any) -> None:
        screen, target = _shared(**{name: given.pop(name) for name in shared})
        command(screen, target, **given)

    first, last = _split(list(shared.values()))
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    signature = inspect.Signature([*first, *own, *last])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {name: one.annotation for name, one in signature.parameters.items()}
    return run


def _split(shared: Sequence[inspect.Parameter]) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    """Context and table, which come first, and the options, which follow a command's own."""
    first = [one for one in shared if one.kind is not one.KEYWORD_ONLY]
    return first, [one for one in shared if one.kind is one.KEYWORD_ONLY]
