"""``wr.athena`` as awswrangler has it: ``to_iceberg`` is safewrite's, all other names are awswrangler's."""

from __future__ import annotations

from typing import Any

from safewrite.wrangler.handing_on import handed_on, names_of
from safewrite.wrangler.iceberg import to_iceberg

__all__ = ["to_iceberg"]


def __getattr__(name: str) -> Any:
    return handed_on("athena", name)


def __dir__() -> list[str]:
    return names_of("athena", list(globals()))
