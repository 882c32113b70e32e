"""Says of each epoch whether its full load replaces the table or adds to it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from safewrite.errors import InvalidInputError

Policy = Literal["keep", "truncate"]
Reload = Policy | dict[Annotated[str, Field(pattern="^[1-9][0-9]*$")], Policy]
"""For the configured epoch alone, or for each epoch from the second on."""


def check_reload(reload: Reload | None, epoch: int) -> None:
    """Refuse what leaves the configured epoch without a word, and a word about the first.  Raises ValueError."""
    said = reload if isinstance(reload, dict) else {} if reload is None else {str(epoch): reload}
    if (epoch > 1 and str(epoch) not in said) or "1" in said:
        raise ValueError(
            "reload: from epoch 2 on say 'truncate' (a full load of the new task is the whole table, and rows that it "
            "does not have go) or 'keep'; of no use in epoch 1"
        )


def truncating(reload: Reload | None, epoch: int) -> list[int]:
    """The epochs up to this one that begin with an empty table: so it was declared, whatever their full loads bring."""
    said = reload if isinstance(reload, dict) else {} if reload is None else {str(epoch): reload}
    return sorted(int(one) for one, word in said.items() if word == "truncate" and int(one) <= epoch)


def check_said(reload: Reload | None, epoch: int, loaded: Iterable[int], name: str) -> None:
    """Refuse loads of epochs, ``loaded``, of which it is not said what they take away.

    Raises:
        InvalidInputError: nothing is said of one of them, which was loaded under an earlier configuration.
    """
    said = reload if isinstance(reload, dict) else {} if reload is None else {str(epoch): reload}
    later = sorted(one for one in set(loaded) if one > 1)
    if unsaid := [one for one in later if str(one) not in said]:
        wanted = {
            str(one): said.get(str(one), "truncate or keep") for one in sorted({*later, *map(int, said)})
        }
        raise InvalidInputError(
            f"Full loads of the epochs {unsaid} of {name} are taken again, and reload says nothing of them: rows would "
            "come back that such a load took away, or go. Nothing was written to silver. Say of each epoch what was "
            f'said when it was loaded: "reload": {json.dumps(wanted)}.'
        )
