"""The blame report of a checkpoint that did not complete: who was missing, since when, doing what, how often before."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_ckpt.protocol.codec import Json, JsonObject, write_time

NAMED = 50  # how many of the missing are named; the rest are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A participant that did not acknowledge, or a query that did not reach its cut."""

    name: str
    stage: str
    since: datetime
    host: str | None


def blame(missing: Sequence[Missing], *, total: int, late_before: Iterable[Sequence[str]]) -> JsonObject:
    """Build the report.

    :param missing: those to name, at most `NAMED` of them.
    :param total: how many were missing altogether.
    :param late_before: for each of the recent checkpoints, who was last or missing there.
    """
    recent = [frozenset(names) for names in late_before]
    often = Counter(name for names in recent for name in names)
    return {
        "missing": total,
        "recent": len(recent),
        "named": [_named(each, often[each.name]) for each in missing[:NAMED]],
    }


def late_in(last_participant: str | None, report: JsonObject | None) -> tuple[str, ...]:
    """Who was last in a completed checkpoint, or missing in a failed one."""
    named = report.get("named") if report else None
    if isinstance(named, list):
        return tuple(str(each["name"]) for each in named if isinstance(each, dict))
    return (last_participant,) if last_participant else ()


def describe(report: JsonObject) -> str:
    """One sentence for logs and errors."""
    named = report.get("named")
    if not isinstance(named, list) or not named:
        return "nobody was missing"
    texts = [_sentence(each, report) for each in named[:3] if isinstance(each, dict)]
    total = report.get("missing")
    more = f" and {total - len(texts)} more" if isinstance(total, int) and total > len(texts) else ""
    return "missing: " + "; ".join(texts) + more


def _named(missing: Missing, late_before: int) -> Json:
    return {
        "name": missing.name,
        "stage": missing.stage,
        "since": write_time(missing.since),
        "host": missing.host,
        "late_before": late_before,
    }


def _sentence(each: JsonObject, report: JsonObject) -> str:
    where = f" on {each['host']}" if each.get("host") else ""
    often = f", late in {each['late_before']} of the last {report['recent']}" if each.get("late_before") else ""
    return f"{each['name']} ({each['stage']} since {each['since']}{where}{often})"
