"""JSON that can be trusted: canonical bytes out, checked values in.

A reader names the document and the field that it could not believe, so that damage is found where it is.
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import NoReturn, TypeAlias, TypeVar

from airflow_provider_ckpt.protocol.errors import Corrupt

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | int | float | bool | None"
JsonObject: TypeAlias = Mapping[str, Json]
_Choice = TypeVar("_Choice", bound=StrEnum)


def canonical(document: Json) -> bytes:
    """The one way to write a document: sorted keys, no spaces, UTF-8, a newline at the end."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def parse(what: str, data: bytes) -> "Fields":
    """Read a JSON object; `what` names it in errors."""
    try:
        document = json.loads(
            data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
        canonical(document)  # whatever is believed can be written again: no half characters
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{what} is not JSON: {error}.") from error
    return Fields(what, document)


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a field stands in it twice")
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.30} is beyond counting")
    return number


def write_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Fields:
    """The fields of one JSON object, each read once and checked; `done` refuses what nobody read."""

    def __init__(self, what: str, document: Json) -> None:
        if not isinstance(document, dict):
            raise Corrupt(f"{what} should be an object, not {type(document).__name__}.")
        self._what = what
        self._left: dict[str, Json] = dict(document)

    def text(self, name: str) -> str:
        value = self._take(name)
        return value if isinstance(value, str) else self._refuse(name, "text", value)

    def optional_text(self, name: str) -> str | None:
        value = self._take(name)
        return value if value is None or isinstance(value, str) else self._refuse(name, "text or null", value)

    def whole(self, name: str) -> int:
        value = self._take(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        return self._refuse(name, "a whole number from 0", value)

    def optional_whole(self, name: str) -> int | None:
        if self._left.get(name, 0) is None:
            self._take(name)
            return None
        return self.whole(name)

    def flag(self, name: str) -> bool:
        value = self._take(name)
        return value if isinstance(value, bool) else self._refuse(name, "true or false", value)

    def time(self, name: str) -> datetime:
        value = self.text(name)
        try:
            time = datetime.fromisoformat(value)
            return time.astimezone(UTC) if time.tzinfo else self._refuse(name, "a time with its zone", value)
        except (ValueError, OverflowError):
            return self._refuse(name, "an ISO 8601 time", value)

    def choice(self, name: str, kind: type[_Choice]) -> _Choice:
        value = self.text(name)
        try:
            return kind(value)
        except ValueError:
            return self._refuse(name, f"one of {', '.join(kind)}", value)

    def items(self, name: str) -> "list[Fields]":
        return [Fields(f"{self._what}, {name}[{n}]", item) for n, item in enumerate(self.sequence(name))]

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.sequence(name)
        if not all(isinstance(value, str) for value in values):
            return self._refuse(name, "a list of texts", values)
        return tuple(str(value) for value in values)

    def sequence(self, name: str) -> Sequence[Json]:
        value = self._take(name)
        return value if isinstance(value, list) else self._refuse(name, "a list", value)

    def object(self, name: str) -> JsonObject:
        value = self._take(name)
        return value if isinstance(value, dict) else self._refuse(name, "an object", value)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def done(self) -> None:
        """Refuse fields that nobody asked for: this version does not know what they mean."""
        if self._left:
            raise Corrupt(f"{self._what} has unknown fields: {', '.join(sorted(self._left))}.")

    def _take(self, name: str) -> Json:
        if name not in self._left:
            raise Corrupt(f"{self._what} lacks the field {name!r}.")
        return self._left.pop(name)

    def _refuse(self, name: str, expected: str, value: Json) -> NoReturn:
        raise Corrupt(f"{self._what}: {name!r} should be {expected}, not {value!r:.60}.")
