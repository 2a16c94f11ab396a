"""Events: append-only, with who and why."""

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from airflow_provider_ckpt.metastore.engine import Engine, Tx
from airflow_provider_ckpt.metastore.pipelines import lock_pipeline
from airflow_provider_ckpt.metastore.rows import event_of
from airflow_provider_ckpt.metastore.schema import events
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.records import Event

_CHUNK = 500  # conditions that SQLite takes at once
_LIMIT = 1000  # events that one look brings; the next look brings the rest


class Events:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def newest(
        self, pipeline: str, *, checkpoint: int | None = None, before: int | None = None, limit: int = 50
    ) -> list[Event]:
        """The newest events of a pipeline, or of one checkpoint, below number `before`, newest first."""
        statement = sa.select(events).where(events.c.pipeline == pipeline)
        if before is not None:
            statement = statement.where(events.c.seq < before)
        if checkpoint is not None:
            statement = statement.where(events.c.checkpoint == checkpoint)
        with self._engine.read() as tx:
            rows = tx.connection.execute(statement.order_by(events.c.seq.desc()).limit(limit)).mappings()
            return [event_of(row) for row in rows]

    def last(self, pipeline: str, kind: str, *, attempt: int | None = None) -> Event | None:
        """The newest event of a kind, of the pipeline or of one of its attempts."""
        with self._engine.read() as tx:
            return read_last(tx, pipeline, kind, attempt=attempt)

    def of_kind(self, pipeline: str, kind: str, *, limit: int) -> list[Event]:
        """The newest events of a kind, newest first; however many others there are, only these are read."""
        statement = sa.select(events).where(events.c.pipeline == pipeline, events.c.kind == kind)
        with self._engine.read() as tx:
            rows = tx.connection.execute(statement.order_by(events.c.seq.desc()).limit(limit)).mappings()
            return [event_of(row) for row in rows]

    def record(
        self, pipeline: str, kind: str, *, actor: str, reason: str, checkpoint: int | None, detail: JsonObject
    ) -> None:
        """Note what somebody asked for that is done elsewhere."""
        with self._engine.write() as tx:
            lock_pipeline(tx, pipeline)
            tx.record(kind, pipeline, actor=actor, reason=reason, checkpoint=checkpoint, detail=detail)

    def position(self, pipeline: str) -> int:
        """Where the events of a pipeline end now: what comes later has a higher number."""
        with self._engine.read() as tx:
            newest = sa.select(sa.func.max(events.c.seq)).where(events.c.pipeline == pipeline)
            return tx.connection.execute(newest).scalar() or 0

    def since(self, positions: Mapping[str, int], kinds: Collection[str]) -> list[Event]:
        """What has happened to any number of pipelines since, oldest first; one query for each 500.

        Whoever records an event holds the pipeline's row until it is visible: within a pipeline none can turn up
        later with a lower number. Between pipelines it can, hence a position for each.
        """
        wanted = list(positions.items())
        chunks = (wanted[start : start + _CHUNK] for start in range(0, len(wanted), _CHUNK))
        found = [event for chunk in chunks for event in self._since(chunk, kinds)]
        return sorted(found, key=lambda event: event.seq)

    def _since(self, positions: Sequence[tuple[str, int]], kinds: Collection[str]) -> list[Event]:
        is_new = (sa.and_(events.c.pipeline == pipeline, events.c.seq > seq) for pipeline, seq in positions)
        statement = sa.select(events).where(sa.or_(*is_new), events.c.kind.in_(sorted(kinds)))
        with self._engine.read() as tx:
            rows = tx.connection.execute(statement.order_by(events.c.seq).limit(_LIMIT)).mappings()
            return [event_of(row) for row in rows]


def read_last(tx: Tx, pipeline: str, kind: str, *, attempt: int | None = None) -> Event | None:
    statement = sa.select(events).where(events.c.pipeline == pipeline, events.c.kind == kind)
    if attempt is not None:
        statement = statement.where(events.c.attempt == attempt)
    row = tx.connection.execute(statement.order_by(events.c.seq.desc()).limit(1)).mappings().first()
    return None if row is None else event_of(row)
