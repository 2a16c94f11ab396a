"""From rows to records and back: the one place that knows how values lie in columns."""

from collections.abc import Mapping
from typing import TypeAlias

import sqlalchemy as sa

from airflow_provider_ckpt.protocol.codec import Fields, Json, JsonObject
from airflow_provider_ckpt.protocol.manifest import consumed_from_items, file_from_fields, file_to_json
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import (
    Ack,
    AckRow,
    AckStatus,
    Attempt,
    AttemptStatus,
    Capture,
    Checkpoint,
    Condemned,
    Cut,
    Decision,
    DesiredState,
    Event,
    Failure,
    Kind,
    Lease,
    LeaseKind,
    Participant,
    ParticipantKind,
    Pin,
    Pipeline,
    Ref,
    Rung,
    SinkCommit,
    SinkStatus,
    Verdict,
)
from airflow_provider_ckpt.protocol.settings import settings_from_json

Row: TypeAlias = sa.RowMapping


def pipeline_of(row: Row) -> Pipeline:
    return Pipeline(
        name=row["name"],
        identity=row["identity"],
        settings=settings_from_json(row["settings"]),
        desired_state=DesiredState(row["desired_state"]),
        current_attempt=row["current_attempt"],
        next_checkpoint=row["next_checkpoint"],
        revision=row["revision"],
        deferred_since=row["deferred_since"],
        cleanup_waiting_since=row["cleanup_waiting_since"],
        created_at=row["created_at"],
    )


def attempt_of(row: Row) -> Attempt:
    return Attempt(
        pipeline=row["pipeline"],
        number=row["number"],
        status=AttemptStatus(row["status"]),
        rung=Rung(row["rung"]),
        parent=row["parent"],
        fork_at=row["fork_at"],
        restored_from=row["restored_from"],
        application_id=row["application_id"],
        host=row["host"],
        numbered_at=row["numbered_at"],
        planned_at=row["planned_at"],
        claimed_at=row["claimed_at"],
        heartbeat_at=row["heartbeat_at"],
        ended_at=row["ended_at"],
        failure=row["failure"],
        accepted=frozenset(row["accepted"] or ()),
        submission=row["submission"],
        submitted_at=row["submitted_at"],
    )


def checkpoint_of(row: Row) -> Checkpoint:
    return Checkpoint(
        ref=Ref(row["pipeline"], row["id"]),
        attempt=row["attempt"],
        phase=Phase(row["phase"]),
        kind=Kind(row["kind"]),
        name=row["name"],
        trigger_key=row["trigger_key"],
        retry_of=row["retry_of"],
        requested_by=row["requested_by"],
        reason=row["reason"],
        triggered_at=row["triggered_at"],
        deadline=row["deadline"],
        frozen_at=row["frozen_at"],
        participants=row["participants"],
        decision=_decision(row),
        decided_at=row["decided_at"],
        ended_at=row["ended_at"],
        failure=_failure(row),
        verdict=Verdict(row["verdict"]) if row["verdict"] else None,
        verdict_detail=row["verdict_detail"],
        last_participant=row["last_participant"],
    )


def _decision(row: Row) -> Decision | None:
    if row["manifest_path"] is None:
        return None
    return Decision(
        manifest_path=row["manifest_path"],
        manifest_sha256=row["manifest_sha256"],
        new_bytes=row["new_bytes"],
        full_bytes=row["full_bytes"],
        new_files=row["new_files"],
        full_files=row["full_files"],
    )


def _failure(row: Row) -> Failure | None:
    if row["failure_reason"] is None:
        return None
    return Failure(
        reason=FailureReason(row["failure_reason"]), message=row["failure_message"], blame=row["blame"] or {}
    )


def cut_of(row: Row) -> Cut:
    consumed = Fields("cut", {"consumed": row["consumed"]})
    return Cut(
        query=row["query"],
        batch=row["batch"],
        consumed=consumed_from_items(consumed.items("consumed")),
        properties=row["properties"],
    )


def participants_to_json(capture: Capture) -> Json:
    return [[participant.name, participant.kind] for participant in capture.participants]


def participants_from_json(document: list[list[str]]) -> tuple[Participant, ...]:
    return tuple(Participant(name=name, kind=ParticipantKind(kind)) for name, kind in document)


def ack_to_json(ack: Ack) -> JsonObject:
    return {
        "files": [file_to_json(file) for file in ack.files],
        "new_bytes": ack.new_bytes,
        "positions": ack.positions,
        "timings": dict(ack.timings),
        "staged": ack.staged,
    }


def ack_from_json(participant: str, document: Mapping[str, Json]) -> Ack:
    fields = Fields(f"ack of {participant}", document)
    return Ack(
        participant=participant,
        files=tuple(map(file_from_fields, fields.items("files"))),
        new_bytes=fields.whole("new_bytes"),
        positions=fields.object("positions"),
        timings={stage: float(str(seconds)) for stage, seconds in fields.object("timings").items()},
        staged=fields.object("staged"),
    )


def ack_row_of(row: Row) -> AckRow:
    return AckRow(
        participant=row["participant"],
        query=row["query"],
        kind=ParticipantKind(row["kind"]),
        status=AckStatus(row["status"]),
        stage=row["stage"],
        stage_at=row["stage_at"],
        host=row["host"],
        ack=ack_from_json(row["participant"], row["ack"]) if row["ack"] else None,
        message=row["message"],
        acked_at=row["acked_at"],
    )


def lease_of(row: Row) -> Lease:
    return Lease(
        pipeline=row["pipeline"],
        kind=LeaseKind(row["kind"]),
        owner=row["owner"],
        token=row["token"],
        acquired_at=row["acquired_at"],
        expires_at=row["expires_at"],
    )


def pin_of(row: Row) -> Pin:
    return Pin(
        ref=Ref(row["pipeline"], row["checkpoint"]),
        owner=row["owner"],
        reason=row["reason"],
        pinned_at=row["pinned_at"],
    )


def sink_commit_of(row: Row) -> SinkCommit:
    return SinkCommit(
        sink=row["sink"],
        status=SinkStatus(row["status"]),
        staged=row["staged"],
        tries=row["tries"],
        last_error=row["last_error"],
        committed_at=row["committed_at"],
        published=row["published"] or {},
    )


def condemned_of(row: Row) -> Condemned:
    return Condemned(
        path=row["path"], why=row["why"], condemned_at=row["condemned_at"], delete_after=row["delete_after"]
    )


def event_of(row: Row) -> Event:
    return Event(
        seq=row["seq"],
        pipeline=row["pipeline"],
        at=row["at"],
        kind=row["kind"],
        attempt=row["attempt"],
        checkpoint=row["checkpoint"],
        actor=row["actor"],
        reason=row["reason"],
        detail=row["detail"],
    )
