"""Says what becomes of a value that its column cannot hold as it is, and makes texts of values."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Literal

from safewrite.cdc.records.change import UndecodableError

OnMisfit = Literal["dead-letter", "null", "floor", "text"]
_INFINITIES = {9_223_372_036_825_200_000: "infinity", -9_223_372_036_832_400_000: "-infinity"}
"""What PostgreSQL's driver has for them in milliseconds, and Debezium in any unit."""
_INFINITE_DAYS = {2**31 - 1: "infinity", -(2**31): "-infinity", -(2**31) + 1: "-infinity"}
_SHOWN_MAX = 200
_EXPONENT_MAX = 1000
"""A decimal of a higher one is written with it: its digits would fill the memory."""
_DAY_NS = 86_400_000_000_000
_ERA_DAYS = 146_097
"""Days of 400 years."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value that its column cannot hold as it is, in the place of it: whoever needs the value decides.

    ``as_text`` makes the text of it, ``floored`` the nearest value below that fits; None where there is none.  Without
    a text where it is unknown whether it is a value at all.
    """

    value: Any
    why: str
    as_text: Callable[[Any], str] | None
    floored: Callable[[Any], Any] | None = None

    @property
    def is_value(self) -> bool:
        return self.as_text is not None

    @property
    def text(self) -> str:
        """The value as a text.

        Raises:
            UndecodableError: it may be none.
        """
        if self.as_text is None:
            raise self.refused()
        return self.as_text(self.value)

    def refused(self) -> UndecodableError:
        return UndecodableError(self.why)

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process: what makes the text and the nearest value is called before."""
        return Misfit, (
            self.value,
            self.why,
            _known(self.as_text, self.value),
            _known(self.floored, self.value),
        )

    def floor(self) -> Any:
        """The nearest value below it that fits.

        Raises:
            UndecodableError: there is none.
        """
        if self.floored is None:
            raise self.refused()
        try:
            return self.floored(self.value)
        except (UndecodableError, ArithmeticError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise self.refused() from error


@dataclass(frozen=True, slots=True)
class _SingleAnswer:
    """What a function said of the only value that it is asked about."""

    answer: Any
    error: Exception | None = None

    def __call__(self, value: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer


def _known(of: Callable[[Any], Any] | None, value: Any) -> _SingleAnswer | None:
    if of is None:
        return None
    try:
        return _SingleAnswer(of(value))
    except (UndecodableError, ArithmeticError, ValueError, TypeError, KeyError, AttributeError) as error:
        return _SingleAnswer(None, error)


def shortened(value: Any) -> str:
    """A value as Python writes it, not too long for a reason."""
    try:
        text = repr(value)
    except ValueError as error:  # a whole number of very many digits
        text = f"({error})"
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."


# --- texts ----------------------------------------------------------------------------------------------
def plain_of(value: Any) -> Any:
    """A value as JSON has it: times in ISO 8601, bytes in base64; decimals stay decimals, which JSON has as numbers."""
    if value is None or isinstance(value, str | bool | int | Decimal):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo is None else f"{value.astimezone(UTC).isoformat()[:-6]}Z"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(name): plain_of(one) for name, one in value.items()}
    if isinstance(value, list) and value and all(isinstance(one, tuple) for one in value):
        return {str(plain_of(name)): plain_of(one) for name, one in value}  # a map
    if isinstance(value, list):
        return [plain_of(one) for one in value]
    return str(value)


def text_of(value: Any) -> str:
    """A value as a text: the text of JSON, without quotes where it is a text itself."""
    found = plain_of(value)
    return found if isinstance(found, str) else _json(found)


def _json(value: Any) -> str:
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        is_long = isinstance(exponent, int) and abs(exponent) > _EXPONENT_MAX
        return str(value) if is_long else format(value, "f")
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(name, ensure_ascii=False)}:{_json(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    return json.dumps(value, ensure_ascii=False)


def date_text(days: int) -> str:
    """A date in days since 1970 of any year, in ISO 8601: year 0 is 1 BC, years of more than four digits have a sign."""
    if days in _INFINITE_DAYS:
        return _INFINITE_DAYS[days]
    # Howard Hinnant, "chrono-compatible low-level date algorithms": civil_from_days.
    era, day = divmod(days + 719_468, _ERA_DAYS)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year += 400 * era + (month <= 2)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def moment_text(count: int, unit_ns: int) -> str:
    """A time without zone, in units since 1970, of any year and to the nanosecond."""
    if count in _INFINITIES:
        return _INFINITIES[count]
    days, within = divmod(count * unit_ns, _DAY_NS)
    return f"{date_text(days)}T{clock_text(within, 1)}"


def clock_text(count: int, unit_ns: int) -> str:
    """A time of a day in units since midnight; also one of a day and more, or less than none, as MySQL's TIME has."""
    whole_ns = abs(count) * unit_ns
    seconds, rest = divmod(whole_ns, 1_000_000_000)
    digits = f"{rest:09d}"
    fraction = "" if not rest else "." + digits[:6] + digits[6:].rstrip("0")
    sign = "-" if count < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
