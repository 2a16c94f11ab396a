"""Pieces of a view that several commands show."""

from collections.abc import Sequence

from rich.console import RenderableType

from airflow_provider_ckpt.cli import humanise
from airflow_provider_ckpt.cli.output import Row, heading, line, section, table
from airflow_provider_ckpt.protocol.codec import Json, JsonObject
from airflow_provider_ckpt.protocol.records import Event

_EVENTS = ("=AT", "=EVENT", ">ATTEMPT", ">CHECKPOINT", "BY", "WHY")
_BLAME = ("MISSING", "STAGE", "=SINCE", "HOST", "LATE BEFORE")


def event_section(events: Sequence[Event]) -> list[RenderableType]:
    return section("Events, newest first", _EVENTS, [_event_row(each) for each in events])


def blame_section(report: JsonObject) -> list[RenderableType]:
    """Who did not acknowledge, since when, doing what, and how often before."""
    named, total = report.get("named"), report.get("missing")
    if not isinstance(named, Sequence) or not named:
        return []
    rows = [_blame_row(each, report) for each in named if isinstance(each, dict)]
    more = total - len(rows) if isinstance(total, int) else 0
    note = [line(f"… and {more} more.", "dim")] if more > 0 else []
    return [heading(f"Missing: {total}"), table(_BLAME, rows), *note]


def _event_row(event: Event) -> Row:
    return (
        humanise.time(event.at),
        event.kind,
        _number(event.attempt),
        _number(event.checkpoint),
        event.actor,
        event.reason,
    )


def _blame_row(each: dict[str, Json], report: JsonObject) -> Row:
    late = each.get("late_before")
    return (
        line(str(each.get("name")), "red"),
        str(each.get("stage") or ""),
        str(each.get("since") or ""),
        str(each.get("host") or ""),
        f"in {late} of the last {report.get('recent')}" if late else "never",
    )


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
