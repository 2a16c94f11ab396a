"""A pipeline without Spark: it counts numbers, really has state, really is restored, and publishes exactly once.

Event number n adds n to the total of partition n modulo `partitions` and emits the row (n, new total). The state of
each partition is a file; only partitions that changed write a new one, so checkpoints are incremental. Rows are staged
until a checkpoint publishes them through `ScriptedSink`. Whatever was killed and restored in between, the published
rows must equal `truth`.
"""

import json
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from airflow_provider_ckpt.coordinator.commit import commit
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.metastore import Beat
from airflow_provider_ckpt.protocol.codec import Fields, JsonObject, canonical
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.errors import LostRace, Refused, TryAgain
from airflow_provider_ckpt.protocol.manifest import Manifest
from airflow_provider_ckpt.protocol.paths import file_path
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import AckOutcome
from airflow_provider_ckpt.protocol.records import (
    Ack,
    Attempt,
    Capture,
    CaptureOutcome,
    Checkpoint,
    Cut,
    FileRef,
    Kind,
    Participant,
    ParticipantKind,
    Ref,
    Rung,
)
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.storage.base import Storage, digest_bytes

QUERY = "totals"
SINK = f"{QUERY}/sink"

Row = tuple[int, int]  # event, total of its partition afterwards


def truth(events: int, partitions: int) -> list[Row]:
    """What an undisturbed run publishes."""
    totals = [0] * partitions
    rows = []
    for event in range(1, events + 1):
        totals[event % partitions] += event
        rows.append((event, totals[event % partitions]))
    return rows


class ScriptedSink:
    """A target that outside readers see: one create-only file per published checkpoint, which is also its marker.

    Its folder has a name that no pipeline can have.
    """

    def __init__(self, storage: Storage, folder: str = "_target") -> None:
        self._storage = storage
        self._folder = folder

    def commit(self, ref: Ref, staged: JsonObject, attempt: int) -> JsonObject:
        self._storage.create(f"{self._folder}/{ref.pipeline}/{ref.id:010}.json", canonical(staged))
        return {"files": 1, "version": str(ref.id), "attempt": attempt}

    def marker(self, pipeline: str) -> SinkMarker:
        published = [file.path for file in self._storage.list(f"{self._folder}/{pipeline}/")]
        newest = max((int(path.rpartition("/")[2].removesuffix(".json")) for path in published), default=None)
        return SinkMarker(committed=newest)

    def read(self, pipeline: str) -> list[Row]:
        """All published rows, in order of publication: what an outside reader sees."""
        files = self._storage.list(f"{self._folder}/{pipeline}/")
        batches = [json.loads(self._storage.read(file.path))["rows"] for file in files]
        return [(event, total) for rows in batches for event, total in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frozen:
    """What was captured for a checkpoint: nothing that happens later changes it."""

    position: int
    totals: tuple[int, ...]
    rows: tuple[Row, ...]


class ScriptedPipeline:
    """One driver of a pipeline.

    ::

        pipeline = ScriptedPipeline(context, "orders", sink=ScriptedSink(storage))
        pipeline.start()          # claims the planned attempt, starts where the restore said
        pipeline.process(5)
        ref = store.barriers.trigger(…).checkpoint.ref
        pipeline.capture(ref)
        pipeline.acknowledge(ref)
        complete(context, ref)
        pipeline.commit(ref)

    Or call `tick` again and again: it beats, processes, and does whatever the store asks for.
    """

    def __init__(
        self,
        context: Context,
        name: str,
        *,
        partitions: int = 2,
        sink: ScriptedSink | None = None,
        claim: str = "scripted",
        application_id: str = "scripted",
    ) -> None:
        self._context = context
        self.name = name
        self.partitions = partitions
        self._sink = sink
        self._claim = claim
        self._application_id = application_id
        self.attempt = 0
        self.position = 0
        self.totals = [0] * partitions
        self._staged: list[Row] = []
        self._stored: dict[str, FileRef] = {}  # participant -> the file that holds its present state
        self._base: int | None = None
        self._frozen: dict[Ref, _Frozen] = {}

    # life

    def start(self, number: int | None = None) -> Attempt:
        """Claim the planned attempt (or the one of that number) and load its state."""
        current = number or self._context.store.pipelines.get(self.name).current_attempt or 0
        attempt = self._context.store.attempts.claim(
            self.name,
            current,
            self._claim,
            Graph((Query(name=QUERY),)),
            application_id=self._application_id,
            host=platform.node(),
        )
        self.attempt = attempt.number
        if attempt.rung is Rung.TIP:
            raise Refused("A scripted pipeline has no location of its own: restore it with a rewind.")
        if attempt.restored_from is not None:
            self.adopt(self._context.store.checkpoints.get(Ref(self.name, attempt.restored_from)))
        return attempt

    def adopt(self, checkpoint: Checkpoint) -> None:
        """Take over the state of a checkpoint, and mean to use its files again."""
        manifest = load_manifest(self._context, checkpoint)
        found = sum(part.kind is ParticipantKind.STATE for part in manifest.parts)
        if found != self.partitions:
            raise Refused(
                f"Checkpoint {checkpoint.ref} has the state of {found} partitions, this pipeline has "
                f"{self.partitions}. Run it with {found}."
            )
        for part in manifest.parts:
            if part.kind is ParticipantKind.SOURCE:
                self.position = Fields("positions", part.positions).whole("event")
            for file in part.files:
                data = self._context.storage.read(manifest.located(file))
                self.totals[_partition(part.participant)] = Fields(file.path, json.loads(data)).whole("total")
        self._build_on(checkpoint, manifest, self.totals)

    def process(self, events: int) -> None:
        """Go on by that many events."""
        for _ in range(events):
            self.position += 1
            partition = self.position % self.partitions
            self.totals[partition] += self.position
            self._stored.pop(self._state(partition), None)
            self._staged.append((self.position, self.totals[partition]))

    def tick(self, events: int = 1) -> Beat:
        """Process, beat, and answer what the store asks for; the beat says whether to go on."""
        self.process(events)
        beat = self._context.store.attempts.heartbeat(self.name, self.attempt, self._claim)
        self._learn_what_ended(beat)
        if beat.in_flight is not None:
            self.answer(beat.in_flight.ref, beat.in_flight.phase)
        return beat

    def answer(self, ref: Ref, phase: Phase) -> None:
        """Do the agent's part of a checkpoint, whatever phase it is in."""
        if phase is Phase.TRIGGERED:
            self.capture(ref)
        if phase in (Phase.TRIGGERED, Phase.IN_PROGRESS) and ref in self._frozen:
            self.acknowledge(ref)
        if phase is Phase.COMMITTING:
            self.commit(ref)
        elif ref in self._frozen:
            with suppress(TryAgain, Refused, LostRace):  # others may have been faster, or it has failed
                complete(self._context, ref)

    # a checkpoint

    def capture(self, ref: Ref) -> CaptureOutcome:
        """Freeze what there is now, and take the cut."""
        outcome = self._capture(ref)
        if outcome is CaptureOutcome.BASE_GONE:
            self._base = None
            self._stored.clear()
            outcome = self._capture(ref)
        if outcome is CaptureOutcome.FROZEN:
            self._frozen[ref] = _Frozen(position=self.position, totals=tuple(self.totals), rows=tuple(self._staged))
        return outcome

    def acknowledge(self, ref: Ref, participants: Sequence[str] | None = None) -> dict[str, AckOutcome]:
        """Make the parts durable and acknowledge them; all of them unless some are named."""
        acks = [self._make_durable(ref, each) for each in participants or self.participants]
        return self._context.store.acks.acknowledge(ref, self.attempt, acks, host=platform.node())

    def commit(self, ref: Ref) -> None:
        """Publish what the checkpoint had staged; it stays staged here until the store says COMPLETED."""
        committers = {} if self._sink is None else {SINK: self._sink}
        checkpoint = commit(self._context, ref, self.attempt, committers)
        if checkpoint.phase is Phase.COMPLETED:
            self.completed(ref)

    def completed(self, ref: Ref) -> None:
        """Learn that a checkpoint is completed: its rows are published, its files can be built on."""
        frozen = self._frozen.pop(ref, None)
        if frozen is None:
            return
        self._staged = [row for row in self._staged if row[0] > frozen.position]
        checkpoint = self._context.store.checkpoints.get(ref)
        self._build_on(checkpoint, load_manifest(self._context, checkpoint), frozen.totals)

    @property
    def participants(self) -> list[str]:
        states = [self._state(partition) for partition in range(self.partitions)]
        return [f"{QUERY}/source", *states, *([SINK] if self._sink else [])]

    # inside

    def _learn_what_ended(self, beat: Beat) -> None:
        """A checkpoint may have been completed, resolved or failed by others meanwhile."""
        flying = None if beat.in_flight is None else beat.in_flight.ref
        for ref in [ref for ref in self._frozen if ref != flying]:
            if self._context.store.checkpoints.get(ref).phase is Phase.COMPLETED:
                self.completed(ref)
            else:
                del self._frozen[ref]

    def _capture(self, ref: Ref) -> CaptureOutcome:
        capture = Capture(
            cut=Cut(query=QUERY, batch=self.position),
            participants=tuple(Participant(name=name, kind=_kind(name)) for name in self.participants),
            bases=() if self._base is None else (self._base,),
        )
        return self._context.store.barriers.capture(ref, self.attempt, capture, host=platform.node())

    def _make_durable(self, ref: Ref, participant: str) -> Ack:
        frozen = self._frozen[ref]
        if participant == SINK:
            return Ack(participant=participant, staged={"rows": [list(row) for row in frozen.rows]})
        if participant == f"{QUERY}/source":
            return Ack(participant=participant, positions={"event": frozen.position})
        stored = self._stored.get(participant)
        if stored is not None:
            return Ack(participant=participant, files=(stored,))
        file = self._write(ref, participant, canonical({"total": frozen.totals[_partition(participant)]}))
        return Ack(participant=participant, files=(file,), new_bytes=file.size)

    def _write(self, ref: Ref, participant: str, data: bytes) -> FileRef:
        path = file_path(self.attempt, ref.id, participant)
        self._context.storage.create(f"{self.name}/{path}", data)
        digest = digest_bytes(data)
        return FileRef(path=path, name=participant, size=digest.size, sha256=digest.sha256)

    def _build_on(self, checkpoint: Checkpoint, manifest: Manifest, totals: Sequence[int]) -> None:
        """The files of partitions that have not changed since can be used again; a savepoint keeps its own."""
        if checkpoint.kind is Kind.SAVEPOINT:
            return
        self._base = checkpoint.ref.id
        for part in manifest.parts:
            if part.kind is ParticipantKind.STATE:
                partition = _partition(part.participant)
                if self.totals[partition] == totals[partition]:
                    self._stored[part.participant] = part.files[0]

    def _state(self, partition: int) -> str:
        return f"{QUERY}/state/{partition}"


def _partition(participant: str) -> int:
    return int(participant.rpartition("/")[2])


def _kind(participant: str) -> ParticipantKind:
    if participant == SINK:
        return ParticipantKind.SINK
    return ParticipantKind.SOURCE if participant.endswith("/source") else ParticipantKind.STATE
