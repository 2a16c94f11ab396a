"""What became of each sink's commit. COMMITTING ends when every sink has committed or was given up by a person."""

import sqlalchemy as sa

from airflow_provider_ckpt.metastore import guards
from airflow_provider_ckpt.metastore.engine import Engine, Tx, clean
from airflow_provider_ckpt.metastore.pipelines import lock_pipeline
from airflow_provider_ckpt.metastore.rows import sink_commit_of
from airflow_provider_ckpt.metastore.schema import checkpoints, sink_commits
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import NotFound
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import SINK_DONE, Ref, SinkCommit, SinkStatus


class Sinks:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(self, ref: Ref) -> list[SinkCommit]:
        with self._engine.read() as tx:
            statement = sa.select(sink_commits).where(
                sink_commits.c.pipeline == ref.pipeline, sink_commits.c.checkpoint == ref.id
            )
            rows = tx.connection.execute(statement.order_by(sink_commits.c.sink)).mappings()
            return [sink_commit_of(row) for row in rows]

    def committed(self, ref: Ref, sink: str, attempt: int, published: JsonObject | None = None) -> bool:
        """Note that a sink has published; False for a fenced attempt or a sink that is done already."""
        with self._engine.write() as tx:
            noted = self._note(
                tx,
                ref,
                sink,
                guards.actor_is_current(ref.pipeline, attempt),
                status=SinkStatus.COMMITTED,
                committed_at=tx.now_sql,
                tries=sink_commits.c.tries + 1,
                last_error=None,
                published=None if published is None else dict(published),
            )
            if noted:
                tx.record("sink.committed", ref.pipeline, checkpoint=ref.id, attempt=attempt, actor=sink)
            return noted

    def nothing_to_commit(self, ref: Ref, sink: str, attempt: int) -> bool:
        """Note that a sink is done without a commit: an older version has left it waiting, with nothing staged."""
        with self._engine.write() as tx:
            return self._note(
                tx,
                ref,
                sink,
                guards.actor_is_current(ref.pipeline, attempt),
                status=SinkStatus.NOTHING,
                last_error=None,
                published={"rows": 0},
            )

    def not_committed(self, ref: Ref, sink: str, attempt: int, error: str, *, is_unknown: bool) -> None:
        """Note a failed try, or one whose outcome nobody knows; the checkpoint stays COMMITTING."""
        with self._engine.write() as tx:
            self._note(
                tx,
                ref,
                sink,
                guards.actor_is_current(ref.pipeline, attempt),
                status=SinkStatus.UNKNOWN if is_unknown else SinkStatus.PENDING,
                tries=sink_commits.c.tries + 1,
                last_error=clean(error),
            )

    def rolled_back(self, pipeline: str, sink: str, to: int, attempt: int) -> int:
        """Note that a target went to where it was with checkpoint `to`; says how many checkpoints it has taken back.

        Where it went forward again, to something that it had taken back, that is committed again.
        """
        is_allowed = (
            sink_commits.c.pipeline == pipeline,
            sink_commits.c.sink == sink,
            guards.actor_is_current(pipeline, attempt),
        )
        is_beyond = (sink_commits.c.checkpoint > to, sink_commits.c.status == SinkStatus.COMMITTED)
        is_back = (sink_commits.c.checkpoint == to, sink_commits.c.status == SinkStatus.ROLLED_BACK)
        with self._engine.write() as tx:
            change = sa.update(sink_commits).where(*is_allowed)
            changed = tx.connection.execute(change.where(*is_beyond).values(status=SinkStatus.ROLLED_BACK))
            tx.connection.execute(change.where(*is_back).values(status=SinkStatus.COMMITTED))
            tx.record("sink.rolled-back", pipeline, checkpoint=to, attempt=attempt, actor=sink, reason=f"back to {to}")
            return changed.rowcount

    def resolve(self, ref: Ref, sink: str, status: SinkStatus, *, actor: str, reason: str) -> None:
        """A person says what became of a commit that can not be finished.

        :raises NotFound: when that sink of that checkpoint is not waiting for anything.
        """
        with self._engine.write() as tx:
            lock_pipeline(tx, ref.pipeline)
            if not self._note(tx, ref, sink, status=status, committed_at=tx.now_sql):
                waiting = ", ".join(_waiting(tx, ref)) or "none"
                raise NotFound(f"Checkpoint {ref} has no sink {sink!r} that waits to commit. Waiting: {waiting}.")
            detail = {"sink": sink, "as": status}
            tx.record("sink.resolved", ref.pipeline, checkpoint=ref.id, actor=actor, reason=reason, detail=detail)

    def _note(self, tx: Tx, ref: Ref, sink: str, *conditions: sa.ColumnElement[bool], **values: object) -> bool:
        is_committing = sa.exists().where(guards.is_checkpoint(ref), guards.in_phase(Phase.COMMITTING))
        changed = tx.connection.execute(
            sa.update(sink_commits)
            .where(
                guards.is_sink(ref, sink),
                sink_commits.c.status.not_in(sorted(SINK_DONE)),
                is_committing,
                *conditions,
            )
            .values(**values)
        )
        return changed.rowcount == 1


def _waiting(tx: Tx, ref: Ref) -> list[str]:
    statement = sa.select(sink_commits.c.sink).where(
        sink_commits.c.pipeline == ref.pipeline,
        sink_commits.c.checkpoint == ref.id,
        sink_commits.c.status.not_in(sorted(SINK_DONE)),
        sa.exists().where(guards.is_checkpoint(ref), checkpoints.c.phase == Phase.COMMITTING),
    )
    return list(tx.connection.execute(statement.order_by(sink_commits.c.sink)).scalars())
