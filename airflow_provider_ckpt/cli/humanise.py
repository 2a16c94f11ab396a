"""Sizes, durations and times as people read them."""

from datetime import UTC, datetime, timedelta

from rich.text import Text

from airflow_provider_ckpt.protocol.duration import approximate
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Decision

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_STYLES = {
    Phase.COMPLETED: "green",
    Phase.FAILED: "red",
    Phase.DISCARDING: "dim",
    Phase.DISCARDED: "dim",
}


def size(count: int | None) -> str:
    """`1.4 MiB`; nothing where nothing is known."""
    if count is None:
        return ""
    value, unit = float(count), 0
    while abs(value) >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(moment: datetime | None, now: datetime) -> str:
    """`5m3s ago`, by the clock that made both times."""
    return "" if moment is None else f"{approximate(max(now - moment, timedelta(0)))} ago"


def lasted(begin: datetime | None, end: datetime | None) -> str:
    return "" if begin is None or end is None else approximate(max(end - begin, timedelta(0)))


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def moved(decision: Decision) -> str:
    """What had to move, of all that belongs to a checkpoint."""
    return f"{size(decision.new_bytes)} new of {size(decision.full_bytes)}"


def phase(value: Phase) -> Text:
    return Text(value, style=_STYLES.get(value, "yellow"))
