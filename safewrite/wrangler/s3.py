"""``wr.s3`` as awswrangler has it: ``to_deltalake`` is safewrite's, all other names are awswrangler's."""

from __future__ import annotations

from typing import Any

from safewrite.wrangler.delta import to_deltalake
from safewrite.wrangler.handing_on import handed_on, names_of

__all__ = ["to_deltalake"]


def __getattr__(name: str) -> Any:
    return handed_on("s3", name)


def __dir__() -> list[str]:
    return names_of("s3", list(globals()))
