"""Pipelines, checkpoints and acknowledgements as a running job makes them, only quicker."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import sqlalchemy as sa

from airflow_provider_ckpt.metastore import Metastore, Start
from airflow_provider_ckpt.metastore.schema import acks, attempts, checkpoints, cuts, pipelines
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.records import (
    Ack,
    Capture,
    CaptureOutcome,
    Cut,
    FileRef,
    Participant,
    Ref,
    Rung,
    TriggerRequest,
)
from airflow_provider_ckpt.protocol.settings import Settings

QUERY = "totals"
ATTEMPT = 1
HOST = "executor-17.spark.internal"


def run_pipeline(store: Metastore, name: str, settings: Settings | None = None) -> None:
    """A pipeline with one running attempt of one query."""
    store.pipelines.create(name, settings or Settings(), identity=name, actor="bench")
    lease = store.leases.acquire_restore(name, owner="bench", token=name)
    attempt = store.attempts.fence(lease, actor="bench")
    store.attempts.settle(lease, attempt.number, Start(rung=Rung.FRESH), actor="bench")
    store.leases.release(lease)
    store.attempts.claim(name, ATTEMPT, "driver", Graph((Query(name=QUERY),)))


def freeze(store: Metastore, pipeline: str, names: Sequence[str]) -> Ref:
    """Start the pipeline's next checkpoint and freeze it with these participants."""
    key = f"run {store.pipelines.get(pipeline).next_checkpoint}"
    started = store.barriers.trigger(TriggerRequest(pipeline=pipeline, key=key, requested_by="bench"))
    assert started.checkpoint is not None, started.detail
    ref = started.checkpoint.ref
    capture = Capture(cut=Cut(query=QUERY, batch=41), participants=tuple(Participant(name=name) for name in names))
    assert store.barriers.capture(ref, ATTEMPT, capture) is CaptureOutcome.FROZEN
    return ref


def participants(count: int) -> list[str]:
    return [f"{QUERY}/state/{operator}/{operator}-{partition:05}" for operator, partition in _places(count)]


def make_ack(participant: str, ref: Ref) -> Ack:
    """As the agent sends one for a partition of a state store."""
    name = f"{participant}/42.delta"
    file = FileRef(
        path=f"files/{ATTEMPT}/{ref.id}/{name}",
        name=name,
        size=48_213,
        sha256=hashlib.sha256(name.encode()).hexdigest(),
    )
    return Ack(
        participant=participant, files=(file,), new_bytes=48_213, positions={"version": 42}, timings={"put": 0.012}
    )


def batches(acks_: Sequence[Ack], size: int) -> list[Sequence[Ack]]:
    return [acks_[start : start + size] for start in range(0, len(acks_), size)]


def clone(store: Metastore, pipeline: str, names: Iterable[str]) -> None:
    """Many more pipelines like `pipeline`, row by row the same, in one transaction."""
    copies = list(names)
    with store.engine.write() as tx:
        for table, column in _OF_PIPELINE:
            rows = tx.connection.execute(sa.select(table).where(table.c[column] == pipeline)).mappings().all()
            tx.connection.execute(sa.insert(table), [{**row, column: name} for name in copies for row in rows])


_OF_PIPELINE = (
    (pipelines, "name"),
    (attempts, "pipeline"),
    (checkpoints, "pipeline"),
    (cuts, "pipeline"),
    (acks, "pipeline"),
)


def _places(count: int) -> Iterator[tuple[int, int]]:
    """Four stateful operators, their partitions one after the other."""
    return ((n % 4, n // 4) for n in range(count))
