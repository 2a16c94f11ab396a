"""One checkpoint: how far it is, who is late and how often before, its cut, its sinks, its files."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Path, Query

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.coordinator.marks import Marker
from airflow_provider_ckpt.metastore import Group
from airflow_provider_ckpt.protocol.cut import in_flight
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import (
    LARGEST,
    SINK_DONE,
    AckRow,
    Checkpoint,
    Ref,
    SinkCommit,
)
from airflow_provider_ckpt.ui.answers import (
    Arrival,
    CheckpointAnswer,
    CheckpointLine,
    CutLine,
    EventLine,
    FailureAnswer,
    FileLine,
    GroupLine,
    Late,
    ManifestAnswer,
    ParticipantAnswer,
    ParticipantLine,
    ParticipantsPage,
    PinLine,
    QueryNode,
    RangeLine,
    SinkLine,
)
from airflow_provider_ckpt.ui.opened import Opened
from airflow_provider_ckpt.ui.pipelines import rights_of
from airflow_provider_ckpt.ui.security import Readable

router = APIRouter(tags=["checkpoint"])
Id = Annotated[int, Path(ge=1, le=LARGEST)]
_HERE = "/pipelines/{pipeline}/checkpoints/{id}"
_NAMED = 10  # of those that are waited for
_STEPS = 60  # of the curve of acknowledgements
_FILES = 500  # of one participant


@router.get(_HERE)
def get_checkpoint(user: GetUserDep, pipeline: Readable, id: Id, context: Opened) -> CheckpointAnswer:  # noqa: A002
    """Everything but the participants and files, which come in pages."""
    store, ref = context.store, Ref(pipeline, id)
    checkpoint, now = store.checkpoints.get(ref), store.checkpoints.now()
    cuts, sinks, decision = store.barriers.cuts(ref), store.sinks.of(ref), checkpoint.decision
    recent = store.checkpoints.late_before(ref)
    groups = store.acks.groups(ref)
    acked = sum(each.acked for each in groups) if checkpoint.is_in_flight else None
    return CheckpointAnswer.like(
        checkpoint,
        checkpoint=CheckpointLine.of(checkpoint, marks=Marker(store, pipeline).marks(checkpoint), acked=acked),
        failure=None if checkpoint.failure is None else FailureAnswer.of(checkpoint.failure),
        waits_for=_waits_for(context, checkpoint, sinks, _how_often(recent), now),
        recent=len(recent),
        groups=[GroupLine.like(each) for each in groups],
        arrivals=_curve(context, checkpoint, groups),
        cuts=[CutLine.of(each) for each in cuts.values()],
        in_flight=[RangeLine.of(each) for each in in_flight(cuts)],
        sinks=[SinkLine.of(each) for each in sinks],
        evidence=Counter(str(each["outcome"]) for each in store.acks.evidence(ref)),
        pins=[PinLine.of(each) for each in store.pins.of(pipeline) if each.ref == ref],
        manifest_path=None if decision is None else decision.manifest_path,
        manifest_sha256=None if decision is None else decision.manifest_sha256,
        new_files=None if decision is None else decision.new_files,
        full_files=None if decision is None else decision.full_files,
        events=[EventLine.like(each) for each in store.events.newest(pipeline, checkpoint=id)],
        rights=rights_of(user, pipeline),
        now=now,
    )


@router.get(f"{_HERE}/participants")
def list_participants(
    pipeline: Readable,
    id: Id,  # noqa: A002
    context: Opened,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    query: Annotated[str | None, Query(max_length=200)] = None,
    search: Annotated[str, Query(max_length=200)] = "",
) -> ParticipantsPage:
    """Those who have not acknowledged first, then those who did so last."""
    store, ref = context.store, Ref(pipeline, id)
    store.checkpoints.get(ref)
    found = store.acks.slowest(ref, limit=limit + 1, offset=offset, query=query, search=search)
    recent = store.checkpoints.late_before(ref)
    often = _how_often(recent)
    return ParticipantsPage(
        participants=[ParticipantLine.of(each, often[each.participant]) for each in found[:limit]],
        next_offset=offset + limit if len(found) > limit else None,
        recent=len(recent),
        captured_at=store.barriers.captured_at(ref),
        now=store.checkpoints.now(),
    )


@router.get(f"{_HERE}/participants/{{name:path}}")
def get_participant(pipeline: Readable, id: Id, name: str, context: Opened) -> ParticipantAnswer:  # noqa: A002
    """One participant with its positions and files."""
    store, ref = context.store, Ref(pipeline, id)
    checkpoint = store.checkpoints.get(ref)
    row = store.acks.get(ref, name)
    files = () if row.ack is None else row.ack.files
    return ParticipantAnswer(
        participant=ParticipantLine.of(row, _how_often(store.checkpoints.late_before(ref))[name]),
        positions={} if row.ack is None else dict(row.ack.positions),
        files=[FileLine.of(each, _own(checkpoint)) for each in files[:_FILES]],
        more_files=max(len(files) - _FILES, 0),
    )


@router.get(f"{_HERE}/manifest")
def get_manifest(
    pipeline: Readable,
    id: Id,  # noqa: A002
    context: Opened,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> ManifestAnswer:
    """The manifest that was decided upon, read from the storage and checked, with a page of its files."""
    checkpoint = context.store.checkpoints.get(Ref(pipeline, id))
    manifest = load_manifest(context, checkpoint)
    files = sorted(manifest.laid_out, key=lambda file: file.path)
    assert checkpoint.decision is not None  # noqa: S101 - else there is no manifest
    return ManifestAnswer(
        path=checkpoint.decision.manifest_path,
        sha256=checkpoint.decision.manifest_sha256,
        size=len(manifest.to_bytes()),
        timeline=[
            f"attempt {s.attempt}" + ("" if s.upto is None else f" up to {s.upto}") for s in manifest.timeline.segments
        ],
        graph=[QueryNode.of(each) for each in manifest.graph.queries],
        participants=len(manifest.parts),
        files=[FileLine.of(each, _own(checkpoint)) for each in files[offset : offset + limit]],
        total_files=len(files),
        next_offset=offset + limit if len(files) > offset + limit else None,
    )


def _own(checkpoint: Checkpoint) -> str:
    return f"files/{checkpoint.attempt}/{checkpoint.ref.id}/"


def _how_often(recent: Iterable[Sequence[str]]) -> Counter[str]:
    return Counter(name for names in recent for name in set(names))


def _waits_for(
    context: Context, checkpoint: Checkpoint, sinks: Sequence[SinkCommit], often: Mapping[str, int], now: datetime
) -> list[Late]:
    """Queries without a cut, then participants, then sinks."""
    store, ref = context.store, checkpoint.ref
    match checkpoint.phase:
        case Phase.TRIGGERED:
            graph, captured = store.attempts.graph(ref.pipeline, checkpoint.attempt), store.barriers.cuts(ref)
            host = store.attempts.get(ref.pipeline, checkpoint.attempt).host
            names = [name for name in graph.capture_order() if name not in captured]
            waited = [(name, host, "no cut", checkpoint.triggered_at) for name in names]
        case Phase.IN_PROGRESS:
            rows = store.acks.pending(ref, limit=_NAMED, first=_worst(often))
            waited = [(row.participant, row.host, row.stage, _since(row, checkpoint)) for row in rows]
        case Phase.COMMITTING:
            left = [sink for sink in sinks if sink.status not in SINK_DONE]
            since = checkpoint.decided_at or now
            waited = [(sink.sink, None, f"commit {sink.status}, {sink.tries} tries", since) for sink in left]
        case _:
            return []
    late = [
        Late(
            name=name,
            host=host,
            stage=stage,
            for_seconds=max((now - since).total_seconds(), 0.0),
            late_before=often.get(name, 0),
        )
        for name, host, stage, since in waited[:_NAMED]
    ]
    return sorted(late, key=lambda each: -each.late_before)


def _worst(often: Mapping[str, int]) -> list[str]:
    """Those who were late most often."""
    return sorted(often, key=lambda name: -often[name])[:_NAMED]


def _since(row: AckRow, checkpoint: Checkpoint) -> datetime:
    return row.stage_at or checkpoint.frozen_at or checkpoint.triggered_at


def _curve(context: Context, checkpoint: Checkpoint, groups: Sequence[Group]) -> list[Arrival]:
    """How many had acknowledged by when, in a bounded number of steps, the last one included."""
    acked = sum(each.acked for each in groups)
    found = dict(context.store.acks.arrivals(checkpoint.ref, every=acked // _STEPS + 1))
    last = max((each.last_acked_at for each in groups if each.last_acked_at is not None), default=None)
    if last is not None:
        found[acked] = last
    begin = checkpoint.triggered_at
    return [Arrival(after_seconds=max((at - begin).total_seconds(), 0.0), acked=count) for count, at in found.items()]
