"""Events: append-only, with who and why."""

import sqlalchemy as sa

from airflow_provider_ckpt.metastore.engine import Engine
from airflow_provider_ckpt.metastore.rows import event_of
from airflow_provider_ckpt.metastore.schema import events
from airflow_provider_ckpt.protocol.records import Event


class Events:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def newest(self, pipeline: str, *, checkpoint: int | None = None, limit: int = 50) -> list[Event]:
        """The newest events of a pipeline, or of one checkpoint, newest first."""
        statement = sa.select(events).where(events.c.pipeline == pipeline)
        if checkpoint is not None:
            statement = statement.where(events.c.checkpoint == checkpoint)
        with self._engine.read() as tx:
            rows = tx.connection.execute(statement.order_by(events.c.seq.desc()).limit(limit)).mappings()
            return [event_of(row) for row in rows]
