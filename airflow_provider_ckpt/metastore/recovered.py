"""Rows for checkpoints that are known from their manifests alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from airflow_provider_ckpt.metastore.engine import Engine, Tx
from airflow_provider_ckpt.metastore.pipelines import bump_revision, insert_pipeline, lock_pipeline
from airflow_provider_ckpt.metastore.schema import attempts, checkpoints, pipelines, sink_commits
from airflow_provider_ckpt.protocol.fork import Fork, find_fork
from airflow_provider_ckpt.protocol.manifest import Manifest
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.pledge import has_nothing
from airflow_provider_ckpt.protocol.records import AttemptStatus, Ref, Rung, SinkStatus
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.protocol.retention import DEFAULT_LAST, Retention
from airflow_provider_ckpt.protocol.settings import Settings

_GAP = 1000  # ids and attempt numbers that may have been given out and left no trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A decided checkpoint as the storage knows it."""

    manifest: Manifest
    manifest_path: str
    manifest_sha256: str


class Recovery:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def missing(self, pipeline: str, found: Sequence[Recovered]) -> list[Ref]:
        """Which of them the store does not have."""
        with self._engine.read() as tx:
            return [each.manifest.ref for each in _unknown(tx, pipeline, found)]

    def add(
        self,
        pipeline: str,
        found: Sequence[Recovered],
        *,
        identity: str,
        actor: str,
        markers: Mapping[str, SinkMarker] | None = None,
    ) -> list[Ref]:
        """Add those that the store does not have, in one transaction; nothing that is there changes.

        :param markers: what the targets of the newest one say, by sink, as far as they can be reached.
        """
        said = markers or {}
        with self._engine.write() as tx:
            is_new = insert_pipeline(tx, pipeline, _cautious(len(found)), identity)
            lock_pipeline(tx, pipeline)
            is_new = is_new or _adopt_empty(tx, pipeline, identity)
            added = _unknown(tx, pipeline, found)
            newest = max((each.manifest for each in found), key=lambda manifest: manifest.ref.id)
            by_id = {each.manifest.ref.id: each.manifest for each in found}
            fork = find_fork(newest, by_id, said) if is_new else None
            _add_attempts(tx, pipeline, [each.manifest for each in added])
            if fork is not None:
                _add_fork(tx, pipeline, fork, by_id)
            for each in added:
                is_open = is_new and fork is None and each.manifest is newest
                _add_checkpoint(tx, each, is_open=is_open, said=said if is_new else {})
            _continue_after(tx, pipeline, added, said, actor)
            if is_new:
                current = newest.attempt if fork is None else fork.attempt
                tx.connection.execute(
                    sa.update(pipelines).where(pipelines.c.name == pipeline).values(current_attempt=current)
                )
            return [each.manifest.ref for each in added]


def _adopt_empty(tx: Tx, pipeline: str, identity: str) -> bool:
    """A pipeline that was made and never used takes the storage over, with the settings it was given."""
    used = sa.or_(
        sa.exists().where(attempts.c.pipeline == pipeline), sa.exists().where(checkpoints.c.pipeline == pipeline)
    )
    if tx.connection.execute(sa.select(used)).scalar_one():
        return False
    tx.connection.execute(sa.update(pipelines).where(pipelines.c.name == pipeline).values(identity=identity))
    return True


def _cautious(count: int) -> Settings:
    return Settings(retention=Retention(last=max(DEFAULT_LAST, count)))


def _unknown(tx: Tx, pipeline: str, found: Iterable[Recovered]) -> list[Recovered]:
    known = set(tx.connection.execute(sa.select(checkpoints.c.id).where(checkpoints.c.pipeline == pipeline)).scalars())
    return [each for each in found if each.manifest.ref.id not in known]


def _add_attempts(tx: Tx, pipeline: str, manifests: Iterable[Manifest]) -> None:
    """The line of attempts as the manifests tell it: who continues whom, and from where."""
    known = set(tx.connection.execute(sa.select(attempts.c.number).where(attempts.c.pipeline == pipeline)).scalars())
    for manifest in sorted(manifests, key=lambda each: each.ref.id, reverse=True):
        segments = manifest.timeline.segments
        for segment, parent in zip(segments, [*segments[1:], None], strict=True):
            if segment.attempt not in known:
                known.add(segment.attempt)
                _add_attempt(
                    tx, pipeline, segment.attempt, parent.attempt if parent else None, parent.upto if parent else None
                )


def _add_attempt(tx: Tx, pipeline: str, number: int, parent: int | None, fork_at: int | None) -> None:
    tx.connection.execute(
        sa.insert(attempts).values(
            pipeline=pipeline,
            number=number,
            status=AttemptStatus.SUPERSEDED,
            rung=Rung.FRESH if parent is None else Rung.CHECKPOINT,
            parent=parent,
            fork_at=fork_at,
            restored_from=fork_at,
            numbered_at=tx.now_sql,
            planned_at=tx.now_sql,
            claimed_at=tx.now_sql,
            ended_at=tx.now_sql,
            failure="rebuilt from manifests",
        )
    )


def _add_fork(tx: Tx, pipeline: str, fork: Fork, by_id: Mapping[int, Manifest]) -> None:
    """An attempt that only its targets know: what came after the checkpoint that it went back to is left behind."""
    start = by_id.get(fork.at)
    _add_attempt(tx, pipeline, fork.attempt, start.attempt if start else None, start.ref.id if start else None)


def _add_checkpoint(tx: Tx, found: Recovered, *, is_open: bool, said: Mapping[str, SinkMarker]) -> None:
    """The newest one may be decided and not committed: its sinks commit again, which changes nothing twice."""
    manifest = found.manifest
    is_committing = is_open and any(not has_nothing(part.staged) for part in manifest.sinks)
    files = manifest.files.values()
    tx.connection.execute(
        sa.insert(checkpoints).values(
            pipeline=manifest.ref.pipeline,
            id=manifest.ref.id,
            attempt=manifest.attempt,
            phase=Phase.COMMITTING if is_committing else Phase.COMPLETED,
            kind=manifest.kind,
            name=manifest.name,
            trigger_key=f"rebuilt:{manifest.ref.id}",
            requested_by=manifest.requested_by,
            reason=manifest.reason,
            triggered_at=manifest.triggered_at,
            deadline=manifest.triggered_at,
            frozen_at=manifest.triggered_at,
            participants=len(manifest.parts),
            manifest_path=found.manifest_path,
            manifest_sha256=found.manifest_sha256,
            new_bytes=0,
            full_bytes=sum(file.size for file in files),
            new_files=0,
            full_files=len(manifest.files),
            decided_at=tx.now_sql,
            ended_at=None if is_committing else tx.now_sql,
        )
    )
    _add_sinks(tx, manifest, said, is_committing=is_committing)


def _add_sinks(tx: Tx, manifest: Manifest, said: Mapping[str, SinkMarker], *, is_committing: bool) -> None:
    rows = [
        {
            "pipeline": manifest.ref.pipeline,
            "checkpoint": manifest.ref.id,
            "sink": part.participant,
            "status": SinkStatus.PENDING if is_committing else _status(manifest.ref.id, part.participant, said),
            "staged": part.staged,
            "tries": 0,
        }
        for part in manifest.sinks
    ]
    if rows:
        tx.connection.execute(sa.insert(sink_commits), rows)


def _status(checkpoint: int, sink: str, said: Mapping[str, SinkMarker]) -> SinkStatus:
    marker = said.get(sink)
    is_there = marker is None or checkpoint <= (marker.committed or 0)
    return SinkStatus.COMMITTED if is_there else SinkStatus.ROLLED_BACK


def _continue_after(
    tx: Tx, pipeline: str, added: Sequence[Recovered], said: Mapping[str, SinkMarker], actor: str
) -> None:
    """Numbers go on after those that storage and targets have seen."""
    seen_ids = [each.manifest.ref.id for each in added] + [marker.committed or 0 for marker in said.values()]
    seen_attempts = [each.manifest.attempt for each in added] + [marker.attempt for marker in said.values()]
    changed = False
    for column, seen in ((pipelines.c.next_checkpoint, seen_ids), (pipelines.c.next_attempt, seen_attempts)):
        least = max(seen, default=0)
        is_behind = column <= (least + _GAP if added else least)
        statement = sa.update(pipelines).where(pipelines.c.name == pipeline, is_behind).values({column: least + _GAP})
        changed = tx.connection.execute(statement).rowcount > 0 or changed
    if changed:
        bump_revision(tx, pipeline)
        ids = [each.manifest.ref.id for each in added]
        tx.record("pipeline.rebuilt", pipeline, actor=actor, detail={"checkpoints": ids})
