"""The values that travel between the bands: frozen, slotted, keyword-only; each checks itself."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Corrupt, Misused
from airflow_provider_ckpt.protocol.paths import check_path
from airflow_provider_ckpt.protocol.phases import IN_FLIGHT, Phase
from airflow_provider_ckpt.protocol.reasons import FailureReason, SkipReason
from airflow_provider_ckpt.protocol.settings import Settings

LARGEST = 2**31 - 1  # what the store's INTEGER columns hold
SHA256 = re.compile(r"[0-9a-f]{64}")


class DesiredState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"


class AttemptStatus(StrEnum):
    PREPARING = "preparing"  # numbered, so every older attempt is fenced; the restore has not chosen its rung yet
    PLANNED = "planned"  # where it starts from is settled; no driver has claimed it
    RUNNING = "running"  # claimed by one driver
    FINISHED = "finished"  # its queries ended by themselves
    STOPPED = "stopped"  # a person stopped it
    FAILED = "failed"
    SUPERSEDED = "superseded"  # a newer attempt took over


ALIVE = frozenset({AttemptStatus.PREPARING, AttemptStatus.PLANNED, AttemptStatus.RUNNING})


class Rung(StrEnum):
    """Where an attempt starts from, best first."""

    FRESH = "fresh"  # from nothing
    TIP = "tip"  # the dead attempt's own location: nothing is replayed
    CHECKPOINT = "checkpoint"  # a rewind


class Kind(StrEnum):
    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


class Verdict(StrEnum):
    VALIDATED = "validated"
    CORRUPT = "corrupt"


class ParticipantKind(StrEnum):
    SOURCE = "source"
    STATE = "state"
    SINK = "sink"
    SPLIT = "split"
    LOG = "log"  # the query's own logs and metadata


class AckStatus(StrEnum):
    PENDING = "pending"
    ACKED = "acked"
    DECLINED = "declined"


class SinkStatus(StrEnum):
    PENDING = "pending"
    COMMITTED = "committed"
    UNKNOWN = "unknown"  # a commit was sent and its outcome is not known
    ABANDONED = "abandoned"  # a person resolved it as never to be committed
    ROLLED_BACK = "rolled-back"  # committed, and taken back by a restore to an older checkpoint
    NOTHING = "nothing"  # no row was staged: there is nothing to commit, and the target stays as it is


SINK_DONE = frozenset({SinkStatus.COMMITTED, SinkStatus.ABANDONED, SinkStatus.ROLLED_BACK, SinkStatus.NOTHING})


class LeaseKind(StrEnum):
    CLEANUP = "cleanup"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """A checkpoint's full name, written `orders/17`."""

    pipeline: str
    id: int

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One of the small files that a pack holds, one after the other."""

    name: str  # what it is called in the layout that a restore makes
    offset: int
    size: int

    def __post_init__(self) -> None:
        check_path(self.name)
        if self.offset < 0 or self.size < 0:
            raise Corrupt(f"The file {self.name} can not have {self.size} bytes from {self.offset} on.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRef:
    """One immutable file of a checkpoint; one with members is a pack, and those of them that are needed are named."""

    path: str  # where it is stored, below the manifest's base
    name: str  # what it is called in the layout that a restore makes
    size: int
    sha256: str
    members: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        check_path(self.path)
        check_path(self.name)
        if self.size < 0:
            raise Corrupt(f"The file {self.path} can not have {self.size} bytes.")
        if not SHA256.fullmatch(self.sha256):
            raise Corrupt(f"The file {self.path} has no SHA-256 but {self.sha256!r:.80}.")
        for member in self.members:
            if member.offset + member.size > self.size:
                raise Corrupt(
                    f"The pack {self.path} of {self.size} bytes can not hold {member.name}: it would end after it."
                )

    @property
    def names(self) -> tuple[str, ...]:
        """What a restore lays out."""
        return tuple(member.name for member in self.members) or (self.name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """Whoever must acknowledge, named `query/…`."""

    name: str
    kind: ParticipantKind = ParticipantKind.STATE

    def __post_init__(self) -> None:
        check_path(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """How far a reader's cut had consumed what one upstream writes into a channel; None: nothing of it yet."""

    channel: str
    writer: str
    batch: int | None

    @property
    def upto(self) -> int:
        return -1 if self.batch is None else self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The committed micro-batch of one query that belongs to a checkpoint; None: nothing is committed yet."""

    query: str
    batch: int | None
    consumed: tuple[Consumed, ...] = ()
    properties: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """A query's cut, who will acknowledge it, and the checkpoints whose stored files it means to use again."""

    cut: Cut
    participants: tuple[Participant, ...]
    bases: tuple[int, ...] = ()


class CaptureOutcome(StrEnum):
    CAPTURED = "captured"  # other queries are still to reach their cuts
    FROZEN = "frozen"  # it was the last one: acknowledgements are expected from now on
    DUPLICATE = "duplicate"  # this query has its cut already
    FAILED = "failed"  # the checkpoint failed with this cut, or had ended
    FENCED = "fenced"  # an older attempt
    BASE_GONE = "base-gone"  # a base is condemned: copy everything anew and capture again


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """A participant's statement that its part is durable."""

    participant: str
    files: tuple[FileRef, ...] = ()
    new_bytes: int = 0  # what had to move for this checkpoint
    positions: JsonObject = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds of each stage
    staged: JsonObject = field(default_factory=dict)  # for sinks: what a commit will publish

    @property
    def full_bytes(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class AckRow:
    """What the store knows of one expected participant."""

    participant: str
    query: str
    kind: ParticipantKind
    status: AckStatus
    stage: str  # what it was last seen doing
    stage_at: datetime | None
    host: str | None
    ack: Ack | None
    message: str | None  # of a decline
    acked_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    reason: FailureReason
    message: str
    blame: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Which manifest was decided upon."""

    manifest_path: str
    manifest_sha256: str
    new_bytes: int
    full_bytes: int
    new_files: int
    full_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    ref: Ref
    attempt: int
    phase: Phase
    kind: Kind
    name: str | None  # of a savepoint
    trigger_key: str
    retry_of: int | None  # the failed checkpoint that had the same trigger key
    requested_by: str
    reason: str
    triggered_at: datetime
    deadline: datetime
    frozen_at: datetime | None
    participants: int | None  # None until membership is frozen
    decision: Decision | None
    decided_at: datetime | None
    ended_at: datetime | None
    failure: Failure | None
    verdict: Verdict | None
    verdict_detail: str | None
    last_participant: str | None  # who acknowledged last, or what a failed one waited for

    @property
    def is_in_flight(self) -> bool:
        return self.phase in IN_FLIGHT

    @property
    def is_restorable(self) -> bool:
        return self.phase is Phase.COMPLETED and self.verdict is not Verdict.CORRUPT


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    pipeline: str
    number: int
    status: AttemptStatus
    rung: Rung
    parent: int | None  # the attempt that it continues
    fork_at: int | None  # the newest checkpoint id of the parent's line that belongs to this attempt's timeline
    restored_from: int | None
    application_id: str | None
    host: str | None
    numbered_at: datetime
    planned_at: datetime | None  # None: the restore that numbered it has not said where it starts from
    claimed_at: datetime | None
    heartbeat_at: datetime | None
    ended_at: datetime | None
    failure: str | None
    accepted: frozenset[str] = frozenset()  # sinks in which a person accepted duplicates for this start
    submission: JsonObject | None = None  # what a cluster knows its application by
    submitted_at: datetime | None = None  # None: nobody has begun to start a driver for it

    @property
    def is_alive(self) -> bool:
        return self.status in ALIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    name: str
    identity: str  # also written into the storage that belongs to it
    settings: Settings
    desired_state: DesiredState
    current_attempt: int | None
    next_checkpoint: int
    revision: int  # grows with everything that cleanup's plans depend on
    deferred_since: datetime | None  # a trigger has been put off for cleanup since then
    cleanup_waiting_since: datetime | None  # a cleanup has been put off since then
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    pipeline: str
    kind: LeaseKind
    owner: str
    token: str
    acquired_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    ref: Ref
    owner: str
    reason: str
    pinned_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkCommit:
    sink: str
    status: SinkStatus
    staged: JsonObject
    tries: int
    last_error: str | None
    committed_at: datetime | None
    published: JsonObject = field(default_factory=dict)  # rows, bytes, files, version of the target


@dataclass(frozen=True, slots=True, kw_only=True)
class Condemned:
    """A stored file that will be deleted and is never used again."""

    path: str
    why: str
    condemned_at: datetime
    delete_after: datetime


AUDITED = frozenset(
    {
        "alerts.heard",
        "alerts.silenced",
        "checkpoint.pinned",
        "checkpoint.unpinned",
        "cleanup.revoked",
        "pipeline.changed",
        "pipeline.created",
        "pipeline.rebuilt",
        f"pipeline.{DesiredState.RUNNING}",
        f"pipeline.{DesiredState.STOPPED}",
        "restore.chosen",
        "restore.requested",
        "restore.revoked",
        "sink.resolved",
    }
)  # kinds of events that say what a person did: they are kept for longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    seq: int
    pipeline: str
    at: datetime
    kind: str
    attempt: int | None
    checkpoint: int | None
    actor: str
    reason: str
    detail: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRequest:
    """The wish for a checkpoint. The same key gives the same checkpoint, unless that one failed."""

    pipeline: str
    key: str
    requested_by: str
    reason: str = ""
    savepoint: str | None = None  # the name of the savepoint that is wanted
    when_due: bool = False  # respect the interval and the minimum pause
    active_cleanup_runs: int = 0  # queued and running cleanup Dag runs, as Airflow counts them
    is_last: bool = False  # of an attempt that ends: also of a pipeline that is meant to be stopped
    then_stop: bool = False  # the pipeline is meant to be stopped from now on
    attempt: int | None = None  # the one that is meant: skipped once a newer one has begun
    since: int | None = None  # the number of an event: skipped once somebody has started the pipeline after it

    def __post_init__(self) -> None:
        if not self.key or not self.requested_by:
            raise Misused("A trigger needs an idempotency key and the name of who asks.")

    @property
    def kind(self) -> Kind:
        return Kind.CHECKPOINT if self.savepoint is None else Kind.SAVEPOINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """What a trigger led to: a checkpoint (new, or the one this key already has), or a skip."""

    checkpoint: Checkpoint | None
    is_new: bool
    skipped: SkipReason | None
    detail: str
