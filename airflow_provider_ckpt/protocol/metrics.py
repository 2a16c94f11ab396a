"""What is measured, by name: `ckpt.<pipeline>.<what>`; times in milliseconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from airflow_provider_ckpt.protocol.records import Checkpoint


class MetricKind(StrEnum):
    COUNT = "count"
    GAUGE = "gauge"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    name: str
    kind: MetricKind
    value: float


class Reporter(Protocol):
    """What StatsD's client and Airflow's own metrics have in common."""

    def incr(self, stat: str, count: int, /) -> object: ...

    def gauge(self, stat: str, value: float, /) -> object: ...

    def timing(self, stat: str, delta: float, /) -> object: ...


def report(metrics: Iterable[Metric], reporter: Reporter) -> None:
    for each in metrics:
        match each.kind:
            case MetricKind.COUNT:
                reporter.incr(each.name, int(each.value))
            case MetricKind.GAUGE:
                reporter.gauge(each.name, each.value)
            case MetricKind.TIME:
                reporter.timing(each.name, each.value)


def of_completed(checkpoint: Checkpoint, *, new_bytes: int | None, full_bytes: int | None) -> list[Metric]:
    name, times = checkpoint.ref.pipeline, _times(checkpoint)
    sizes = {"new_bytes": new_bytes, "full_bytes": full_bytes, "acks": checkpoint.participants}
    return [
        _count(name, "checkpoint.completed"),
        *(_time(name, f"checkpoint.{phase}", took) for phase, took in times.items()),
        *(_gauge(name, f"checkpoint.{what}", value) for what, value in sizes.items() if value is not None),
    ]


def of_failed(checkpoint: Checkpoint) -> list[Metric]:
    reason = "unknown" if checkpoint.failure is None else checkpoint.failure.reason
    name = checkpoint.ref.pipeline
    return [_count(name, "checkpoint.failed"), _count(name, f"checkpoint.failed.{reason}")]


def of_skipped(pipeline: str, reason: str) -> list[Metric]:
    return [_count(pipeline, "trigger.skipped"), _count(pipeline, f"trigger.skipped.{reason}")]


def of_look(pipeline: str, *, age: timedelta | None, recovery_point: timedelta | None, problems: int) -> list[Metric]:
    """What whoever looks after a pipeline sees: how old its newest checkpoint is and may be, and how much is wrong."""
    times = {"checkpoint.age": age, "objective.recovery_point": recovery_point}
    seen = [_gauge(pipeline, what, time.total_seconds()) for what, time in times.items() if time is not None]
    return [*seen, _gauge(pipeline, "problems", problems)]


def of_restored(pipeline: str, rung: str) -> list[Metric]:
    return [_count(pipeline, "restored"), _count(pipeline, f"restored.{rung}")]


def of_cleaned(pipeline: str, *, discarded: int, files: int, size: int) -> list[Metric]:
    return [
        _count(pipeline, "cleanup.discarded", discarded),
        _count(pipeline, "cleanup.deleted_files", files),
        _count(pipeline, "cleanup.deleted_bytes", size),
    ]


def of_driver(pipeline: str, counts: Mapping[str, int], times: Mapping[str, float]) -> list[Metric]:
    """What the driver itself measures; times in seconds."""
    return [
        *(_count(pipeline, f"driver.{what}", value) for what, value in counts.items()),
        *(_time(pipeline, f"driver.{what}", timedelta(seconds=value)) for what, value in times.items()),
    ]


def _times(checkpoint: Checkpoint) -> dict[str, timedelta]:
    """How long each phase took: until the cut was recorded, until all had acknowledged, until all had committed."""
    moments: list[tuple[str, datetime | None, datetime | None]] = [
        ("duration", checkpoint.triggered_at, checkpoint.ended_at),
        ("cut", checkpoint.triggered_at, checkpoint.frozen_at),
        ("persist", checkpoint.frozen_at, checkpoint.decided_at),
        ("commit", checkpoint.decided_at, checkpoint.ended_at),
    ]
    return {name: until - since for name, since, until in moments if since is not None and until is not None}


def _count(pipeline: str, what: str, value: float = 1) -> Metric:
    return Metric(name=f"ckpt.{pipeline}.{what}", kind=MetricKind.COUNT, value=value)


def _gauge(pipeline: str, what: str, value: float) -> Metric:
    return Metric(name=f"ckpt.{pipeline}.{what}", kind=MetricKind.GAUGE, value=value)


def _time(pipeline: str, what: str, took: timedelta) -> Metric:
    return Metric(name=f"ckpt.{pipeline}.{what}", kind=MetricKind.TIME, value=took / timedelta(milliseconds=1))
