"""What the API says: times in ISO 8601 UTC, durations in seconds, sizes in bytes. Nothing gets out that is not here."""

from datetime import datetime, timedelta
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from airflow_provider_ckpt.metastore import Measure
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.cut import InFlight, Query
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import (
    AckRow,
    AckStatus,
    Attempt,
    AttemptStatus,
    Checkpoint,
    Cut,
    DesiredState,
    Failure,
    FileRef,
    Kind,
    LeaseKind,
    ParticipantKind,
    Pin,
    Rung,
    SinkCommit,
    SinkStatus,
)

_STAGED = ("rows", "bytes", "files", "batches")  # what a sink says of itself; the rest is for its commit


def seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)

    @classmethod
    def like(cls, record: object, **given: Any) -> Self:
        """With the record's attributes of the same names, and what is given."""
        same = {name: getattr(record, name) for name in cls.model_fields.keys() - given.keys()}
        return cls(**same, **given)


class Problem(Answer):
    """Why something was not done: what happened, to what, and what to do next."""

    detail: str


class Missing(Answer):
    """A line of a blame report."""

    name: str
    stage: str
    since: datetime
    host: str | None
    late_before: int


class FailureAnswer(Answer):
    reason: FailureReason
    message: str
    missing: int
    recent: int  # how many checkpoints `late_before` is counted over
    named: list[Missing]

    @classmethod
    def of(cls, failure: Failure) -> "FailureAnswer":
        blame: Any = failure.blame
        return cls(
            reason=failure.reason,
            message=failure.message,
            missing=blame.get("missing", 0),
            recent=blame.get("recent", 0),
            named=blame.get("named", []),
        )


class CheckpointLine(Answer):
    """One line of the history."""

    id: int
    phase: Phase
    kind: Kind
    name: str | None
    attempt: int
    requested_by: str
    reason: str
    triggered_at: datetime
    deadline: datetime
    ended_at: datetime | None
    duration_seconds: float | None
    participants: int | None
    acked: int | None
    new_bytes: int | None
    full_bytes: int | None
    failure_reason: FailureReason | None
    failure_message: str | None
    last_participant: str | None
    marks: list[str]

    @classmethod
    def of(cls, checkpoint: Checkpoint, *, marks: list[str], acked: int | None = None) -> "CheckpointLine":
        """:param acked: of one that is in flight; of an ended one it is known without asking."""
        decision, failure, ended_at = checkpoint.decision, checkpoint.failure, checkpoint.ended_at
        return cls.like(
            checkpoint,
            id=checkpoint.ref.id,
            duration_seconds=None if ended_at is None else seconds(ended_at - checkpoint.triggered_at),
            acked=_acked(checkpoint) if acked is None else acked,
            new_bytes=None if decision is None else decision.new_bytes,
            full_bytes=None if decision is None else decision.full_bytes,
            failure_reason=None if failure is None else failure.reason,
            failure_message=None if failure is None else failure.message,
            marks=marks,
        )


def _acked(checkpoint: Checkpoint) -> int | None:
    if checkpoint.participants is None or checkpoint.failure is None:
        return checkpoint.participants
    missing = checkpoint.failure.blame.get("missing", 0)
    return checkpoint.participants - missing if isinstance(missing, int) else None


class HistoryPage(Answer):
    checkpoints: list[CheckpointLine]
    next_before: int | None  # hand it in as `before` for the next page


class AttemptLine(Answer):
    number: int
    status: AttemptStatus
    rung: Rung
    parent: int | None
    restored_from: int | None
    application_id: str | None
    host: str | None
    numbered_at: datetime
    planned_at: datetime | None
    claimed_at: datetime | None
    progressed_at: datetime | None
    heartbeat_at: datetime | None
    ended_at: datetime | None
    failure: str | None
    accepted: list[str]
    down_seconds: float | None  # from the last sign of life of the attempt before to its own first batch

    @classmethod
    def of(cls, attempt: Attempt, progressed_at: datetime | None, down: timedelta | None) -> "AttemptLine":
        return cls.like(
            attempt, progressed_at=progressed_at, accepted=sorted(attempt.accepted), down_seconds=seconds(down)
        )


class EventLine(Answer):
    seq: int
    at: datetime
    kind: str
    attempt: int | None
    checkpoint: int | None
    actor: str
    reason: str


class AttemptsPage(Answer):
    attempts: list[AttemptLine]  # newest first
    next_before: int | None
    now: datetime


class EventsPage(Answer):
    events: list[EventLine]  # newest first
    next_before: int | None


class LeaseLine(Answer):
    kind: LeaseKind
    owner: str
    acquired_at: datetime
    expires_at: datetime


class PinLine(Answer):
    checkpoint: int
    owner: str
    reason: str
    pinned_at: datetime

    @classmethod
    def of(cls, pin: Pin) -> "PinLine":
        return cls.like(pin, checkpoint=pin.ref.id)


class Point(Answer):
    """One checkpoint in a chart."""

    id: int
    attempt: int
    phase: Phase
    kind: Kind
    triggered_at: datetime
    duration_seconds: float | None
    age_seconds: float | None  # how old the newest completed one had become just before this one was completed
    new_bytes: int | None
    full_bytes: int | None
    failure_reason: FailureReason | None

    @classmethod
    def of(cls, measure: Measure, age: timedelta | None) -> "Point":
        ended_at = measure.ended_at
        took = None if ended_at is None else ended_at - measure.triggered_at
        return cls.like(measure, duration_seconds=seconds(took), age_seconds=seconds(age))


class Percentiles(Answer):
    least: float
    average: float
    p50: float
    p90: float
    p95: float
    p99: float
    most: float


class RestoreMark(Answer):
    attempt: int
    at: datetime
    rung: Rung
    restored_from: int | None


class Trends(Answer):
    points: list[Point]  # oldest first
    restores: list[RestoreMark]
    duration_seconds: Percentiles | None  # of those that did not fail
    new_bytes: Percentiles | None
    full_bytes: Percentiles | None
    age_seconds: Percentiles | None
    recovery_point_seconds: float | None


class DagFacts(Answer):
    """A Dag of the pipeline, as Airflow knows it."""

    dag_id: str
    is_paused: bool
    next_run_at: datetime | None


class Rights(Answer):
    may_act: bool
    may_restore: bool


class Counts(Answer):
    """Over the newest checkpoints only, so that it costs the same after years."""

    total: int
    completed: int  # also those that were let go since
    failed: int
    in_flight: int


class PipelineLine(Answer):
    name: str
    desired_state: DesiredState
    is_well: bool
    problems: list[str]
    attempt: int | None
    attempt_status: AttemptStatus | None
    newest: CheckpointLine | None  # the newest that a restore could start from
    age_seconds: float | None
    recovery_point_seconds: float | None
    is_stale: bool  # older than its objective, or missing
    in_flight: CheckpointLine | None
    failures_in_a_row: int
    recent: list[Point]  # oldest first
    next_run_at: datetime | None
    is_paused: bool | None  # its checkpoint Dag; None: there is none


class PipelinesPage(Answer):
    pipelines: list[PipelineLine]
    next_after: str | None
    now: datetime | None


class ForecastAnswer(Answer):
    replay_seconds: float | None
    recovery_seconds: float | None
    recoveries: int


class Overview(Answer):
    pipeline: PipelineLine
    counts: Counts
    latest_failed: CheckpointLine | None
    latest_savepoint: CheckpointLine | None
    latest_restore: AttemptLine | None
    current_attempt: AttemptLine | None
    forecast: ForecastAnswer
    leases: list[LeaseLine]
    deferred_since: datetime | None
    dags: list[DagFacts]
    rights: Rights
    now: datetime


class QueryNode(Answer):
    name: str
    reads: list[str]
    writes: list[str]

    @classmethod
    def of(cls, query: Query) -> "QueryNode":
        return cls(name=query.name, reads=sorted(query.reads), writes=sorted(query.writes))


class SettingsAnswer(Answer):
    settings: dict[str, Any]
    desired_state: DesiredState
    created_at: datetime
    graph: list[QueryNode]
    dags: list[DagFacts]
    storage: str
    metastore: str


class Where(Answer):
    """Where the tab of a Dag or of a Dag run opens."""

    pipeline: str | None
    checkpoint: int | None = None
    attempt: int | None = None


class GroupLine(Answer):
    query: str
    kind: ParticipantKind
    expected: int
    acked: int
    last_acked_at: datetime | None


class CutLine(Answer):
    query: str
    batch: int | None
    consumed: list[str]

    @classmethod
    def of(cls, cut: Cut) -> "CutLine":
        said = [f"{each.channel} up to batch {each.batch} of {each.writer}" for each in cut.consumed]
        return cls.like(cut, consumed=said)


class RangeLine(Answer):
    """What a channel held at the cut."""

    channel: str
    writer: str
    reader: str
    first: int
    last: int

    @classmethod
    def of(cls, range_: InFlight) -> "RangeLine":
        return cls.like(range_, first=range_.after + 1, last=range_.upto)


class SinkLine(Answer):
    name: str
    status: SinkStatus
    tries: int
    last_error: str | None
    committed_at: datetime | None
    staged: dict[str, Any]
    published: dict[str, Any]

    @classmethod
    def of(cls, sink: SinkCommit) -> "SinkLine":
        published = _counted(sink.published) | _only(sink.published, ("version",))
        return cls.like(sink, name=sink.sink, staged=_counted(sink.staged), published=published)


def _counted(said: JsonObject) -> dict[str, Any]:
    """A sink may list its rows: how many is enough."""
    found = _only(said, _STAGED)
    return {key: len(value) if isinstance(value, list) else value for key, value in found.items()}


def _only(said: JsonObject, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: said[key] for key in keys if key in said}


class Arrival(Answer):
    after_seconds: float
    acked: int  # so many by then


class Late(Answer):
    """Who a checkpoint waits for, and how often that was so before."""

    name: str
    host: str | None
    stage: str
    for_seconds: float
    late_before: int


class CheckpointAnswer(Answer):
    checkpoint: CheckpointLine
    frozen_at: datetime | None
    decided_at: datetime | None
    retry_of: int | None
    verdict: str | None
    verdict_detail: str | None
    failure: FailureAnswer | None
    waits_for: list[Late]
    recent: int  # how many checkpoints `late_before` is counted over
    groups: list[GroupLine]
    arrivals: list[Arrival]
    cuts: list[CutLine]
    in_flight: list[RangeLine]
    sinks: list[SinkLine]
    evidence: dict[str, int]  # acknowledgements that changed nothing, by outcome
    pins: list[PinLine]
    manifest_path: str | None
    manifest_sha256: str | None
    new_files: int | None
    full_files: int | None
    events: list[EventLine]
    rights: Rights
    now: datetime


class ParticipantLine(Answer):
    name: str
    query: str
    kind: ParticipantKind
    status: AckStatus
    stage: str
    stage_at: datetime | None
    host: str | None
    message: str | None
    acked_at: datetime | None
    timings_seconds: dict[str, float]
    files: int | None
    new_bytes: int | None
    full_bytes: int | None
    late_before: int

    @classmethod
    def of(cls, row: AckRow, late_before: int) -> "ParticipantLine":
        ack = row.ack
        return cls.like(
            row,
            name=row.participant,
            timings_seconds={} if ack is None else dict(ack.timings),
            files=None if ack is None else len(ack.files),
            new_bytes=None if ack is None else ack.new_bytes,
            full_bytes=None if ack is None else ack.full_bytes,
            late_before=late_before,
        )


class ParticipantsPage(Answer):
    participants: list[ParticipantLine]  # stragglers first
    next_offset: int | None
    recent: int
    captured_at: dict[str, datetime]  # when each query's cut was taken
    now: datetime


class FileLine(Answer):
    name: str
    path: str
    size: int
    sha256: str
    members: int  # of a pack: how many files of it are needed
    is_new: bool  # written for this checkpoint, not used again

    @classmethod
    def of(cls, file: FileRef, own: str) -> "FileLine":
        return cls.like(file, members=len(file.members), is_new=own in file.path)


class ParticipantAnswer(Answer):
    participant: ParticipantLine
    positions: dict[str, Any]
    files: list[FileLine]
    more_files: int


class ManifestAnswer(Answer):
    path: str
    sha256: str
    size: int
    timeline: list[str]
    graph: list[QueryNode]
    participants: int
    files: list[FileLine]
    total_files: int
    next_offset: int | None


class HoldingLine(Answer):
    checkpoint: CheckpointLine
    full_bytes: int
    unique_bytes: int
    files: int
    problem: str | None


class StorageAnswer(Answer):
    holdings: list[HoldingLine]  # newest first
    bytes: int
    files: int
    pins: list[PinLine]
    condemned: int
    next_cleanup_at: datetime | None
    is_cleanup_paused: bool | None


class Fate(Answer):
    checkpoint: int
    is_kept: bool
    why: str


class CleanupPlan(Answer):
    """What a cleanup would do now."""

    fates: list[Fate]  # newest first
    deleted_files: int
    deleted_bytes: int
    deleted: list[str]  # some of them
    quarantined: dict[str, str]  # some of what nobody can explain, and why
    quarantined_files: int
    missing: dict[int, list[str]]


class RestorePrice(Answer):
    """What a restore would choose now, and what that costs."""

    is_possible: bool
    why_not: str | None
    rung: Rung | None
    checkpoint: int | None
    replay_seconds: float | None
    passed_over: dict[int, str]
    rolled_back: list[str]
    duplicated: list[str]
    sinks: list[str]  # whose duplicates could be accepted
    living_attempt: int | None  # it would be fenced
    left_behind: list[int]  # newer completed checkpoints, off the timeline from then on


class Triggered(Answer):
    checkpoint: int | None
    skipped: str | None
    detail: str


class Done(Answer):
    checkpoint: int


class RestoreStarted(Answer):
    dag_id: str
    run_id: str
