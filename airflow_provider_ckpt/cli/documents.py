"""The JSON that programs rely on: snake_case keys, times in ISO 8601 UTC, durations in seconds, sizes in bytes."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from airflow_provider_ckpt.coordinator.health import Health
from airflow_provider_ckpt.protocol.codec import Json, JsonObject, write_time
from airflow_provider_ckpt.protocol.cut import InFlight
from airflow_provider_ckpt.protocol.records import (
    AckRow,
    Attempt,
    Checkpoint,
    Cut,
    Decision,
    Event,
    Failure,
    Lease,
    Pin,
    Pipeline,
    SinkCommit,
)


def time(moment: datetime | None) -> Json:
    return None if moment is None else write_time(moment)


def duration(length: timedelta | None) -> Json:
    return None if length is None else length.total_seconds()


def pipeline(value: Pipeline) -> JsonObject:
    return {
        "name": value.name,
        "desired_state": value.desired_state,
        "current_attempt": value.current_attempt,
        "next_checkpoint": value.next_checkpoint,
        "deferred_since": time(value.deferred_since),
        "cleanup_waiting_since": time(value.cleanup_waiting_since),
        "created_at": time(value.created_at),
        "settings": value.settings.to_json(),
    }


def health(value: Health) -> JsonObject:
    return {
        "pipeline": pipeline(value.pipeline),
        "is_well": value.is_well,
        "problems": [each.text for each in value.problems],
        "attempt": None if value.attempt is None else attempt(value.attempt),
        "in_flight": None if value.in_flight is None else checkpoint(value.in_flight),
        "newest_completed": None if value.newest is None else checkpoint(value.newest),
        "newest_age_seconds": duration(value.age),
        "failures_in_a_row": value.failures,
    }


def attempt(value: Attempt) -> JsonObject:
    return {
        "number": value.number,
        "status": value.status,
        "rung": value.rung,
        "parent": value.parent,
        "restored_from": value.restored_from,
        "application_id": value.application_id,
        "host": value.host,
        "numbered_at": time(value.numbered_at),
        "planned_at": time(value.planned_at),
        "claimed_at": time(value.claimed_at),
        "heartbeat_at": time(value.heartbeat_at),
        "ended_at": time(value.ended_at),
        "failure": value.failure,
    }


def checkpoint(value: Checkpoint) -> JsonObject:
    return {
        "ref": str(value.ref),
        "pipeline": value.ref.pipeline,
        "id": value.ref.id,
        "attempt": value.attempt,
        "phase": value.phase,
        "kind": value.kind,
        "name": value.name,
        "key": value.trigger_key,
        "retry_of": value.retry_of,
        "requested_by": value.requested_by,
        "reason": value.reason,
        "triggered_at": time(value.triggered_at),
        "deadline": time(value.deadline),
        "frozen_at": time(value.frozen_at),
        "decided_at": time(value.decided_at),
        "ended_at": time(value.ended_at),
        "participants": value.participants,
        "last_participant": value.last_participant,
        "decision": None if value.decision is None else _decision(value.decision),
        "failure": None if value.failure is None else _failure(value.failure),
        "verdict": value.verdict,
        "verdict_detail": value.verdict_detail,
    }


def _decision(value: Decision) -> JsonObject:
    return {
        "manifest_path": value.manifest_path,
        "manifest_sha256": value.manifest_sha256,
        "new_bytes": value.new_bytes,
        "full_bytes": value.full_bytes,
        "new_files": value.new_files,
        "full_files": value.full_files,
    }


def _failure(value: Failure) -> JsonObject:
    return {"reason": value.reason, "message": value.message, "blame": value.blame}


def participant(value: AckRow) -> JsonObject:
    ack = value.ack
    return {
        "name": value.participant,
        "query": value.query,
        "kind": value.kind,
        "status": value.status,
        "stage": value.stage,
        "stage_at": time(value.stage_at),
        "host": value.host,
        "message": value.message,
        "acked_at": time(value.acked_at),
        "files": None if ack is None else len(ack.files),
        "new_bytes": None if ack is None else ack.new_bytes,
        "full_bytes": None if ack is None else ack.full_bytes,
        "positions": None if ack is None else ack.positions,
        "timings_seconds": None if ack is None else dict(ack.timings),
    }


STAGED = ("rows", "bytes", "files", "batches")  # what a sink says of itself; the rest is for its commit


def sink(value: SinkCommit) -> JsonObject:
    return {
        "name": value.sink,
        "status": value.status,
        "tries": value.tries,
        "last_error": value.last_error,
        "committed_at": time(value.committed_at),
        "staged": {key: value.staged[key] for key in STAGED if key in value.staged},
        "published": value.published,
    }


def cut(value: Cut) -> JsonObject:
    consumed: list[Json] = [
        {"channel": each.channel, "writer": each.writer, "batch": each.batch} for each in value.consumed
    ]
    return {"query": value.query, "batch": value.batch, "consumed": consumed, "properties": value.properties}


def in_flight(value: InFlight) -> JsonObject:
    return {
        "channel": value.channel,
        "writer": value.writer,
        "reader": value.reader,
        "after": value.after,
        "upto": value.upto,
    }


def lease(value: Lease) -> JsonObject:
    return {
        "kind": value.kind,
        "owner": value.owner,
        "acquired_at": time(value.acquired_at),
        "expires_at": time(value.expires_at),
    }


def pin(value: Pin) -> JsonObject:
    return {
        "ref": str(value.ref),
        "owner": value.owner,
        "reason": value.reason,
        "pinned_at": time(value.pinned_at),
    }


def event(value: Event) -> JsonObject:
    return {
        "seq": value.seq,
        "at": time(value.at),
        "kind": value.kind,
        "attempt": value.attempt,
        "checkpoint": value.checkpoint,
        "actor": value.actor,
        "reason": value.reason,
        "detail": value.detail,
    }


def events(values: Iterable[Event]) -> Json:
    return [event(each) for each in values]
