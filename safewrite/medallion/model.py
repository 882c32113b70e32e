"""What all parts of a configuration share: unknown fields are refused, and no value is taken for another kind."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

Text = Annotated[str, Field(min_length=1)]
STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
"""The ``model_config`` of every part."""
