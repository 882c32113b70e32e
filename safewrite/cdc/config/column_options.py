"""Declares what becomes of a source's columns: names, those that do not land, those that are computed; and which rows land."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from safewrite.cdc.config.sql import names_read
from safewrite.intake.settings import Strict, Text


class ColumnOptions(Strict):
    """The columns of a table's rows, and the condition under which they land."""

    name_mapping: Annotated[dict[Text, Text], Field(description="source column to column")] = Field(
        default_factory=dict
    )
    lower_case_names: Annotated[
        bool,
        Field(description="columns get the names of the source in small letters, but those of name_mapping"),
    ] = False
    leave_out: Annotated[list[Text], Field(description="source columns that do not land")] = Field(
        default_factory=list
    )
    filter: Annotated[
        Text | None,
        Field(
            description="SQL of a row, such as status <> 'test': rows for which it is not true are not in the table"
        ),
    ] = None
    computed: Annotated[
        dict[Text, Text],
        Field(description="columns that the job computes, by name: SQL of a row, such as upper(country)"),
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_sql(self) -> Self:
        for text in self.expressions:
            if found := sorted(name for name in self.computed if name.lower() in names_read(text)):
                raise ValueError(
                    f"{text!r} reads {', '.join(found)}, which computed makes: name what it is made of"
                )
        small = [name.lower() for name in self.computed]
        if len(set(small)) < len(small):
            raise ValueError("computed has two columns whose names differ by case alone")
        given = {self.column_of(name).lower() for name in (*self.leave_out, *self.name_mapping)}
        if taken := sorted(name for name in self.computed if name.lower() in given):
            raise ValueError(
                f"computed makes {', '.join(taken)}, which are columns of the source: give what is computed names of its own"
            )
        return self

    def column_of(self, name: str) -> str:
        """The column of the table that a column of the source is."""
        return self.name_mapping.get(name, name.lower() if self.lower_case_names else name)

    @property
    def expressions(self) -> tuple[str, ...]:
        """All SQL of a row: the filter first."""
        return (*(() if self.filter is None else (self.filter,)), *self.computed.values())

    @property
    def only_read(self) -> frozenset[str]:
        """Source columns of leave_out that SQL of a row reads: they are there until it has."""
        names = frozenset[str]().union(*map(names_read, self.expressions))
        return frozenset(name for name in self.leave_out if self.column_of(name).lower() in names)

    @property
    def dropped(self) -> frozenset[str]:
        """Source columns that are not read at all."""
        return frozenset(self.leave_out) - self.only_read
