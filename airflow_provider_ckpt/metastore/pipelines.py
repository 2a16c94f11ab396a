"""Pipelines: settings, desired state, and the row whose lock orders everything that happens to one."""

from collections.abc import Callable

import sqlalchemy as sa

from airflow_provider_ckpt.metastore.engine import Engine, Tx
from airflow_provider_ckpt.metastore.rows import pipeline_of
from airflow_provider_ckpt.metastore.schema import events, pipelines
from airflow_provider_ckpt.protocol.errors import Misused, NotFound
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.records import DesiredState, Pipeline
from airflow_provider_ckpt.protocol.settings import Settings


class Pipelines:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, name: str, settings: Settings, *, identity: str, actor: str) -> Pipeline:
        """Make a pipeline; its identity is a random text that nobody else has.

        :raises Misused: when the pipeline exists.
        """
        check_name("pipeline", name)
        with self._engine.write() as tx:
            if not insert_pipeline(tx, name, settings, identity):
                raise Misused(f"Pipeline {name} exists. Change its settings with `ckpt pipelines {name} --set …`.")
            tx.record("pipeline.created", name, actor=actor, detail=settings.to_json())
            return lock_pipeline(tx, name)

    def get(self, name: str) -> Pipeline:
        with self._engine.read() as tx:
            return read_pipeline(tx, name)

    def all(self) -> list[Pipeline]:
        with self._engine.read() as tx:
            rows = tx.connection.execute(sa.select(pipelines).order_by(pipelines.c.name)).mappings()
            return [pipeline_of(row) for row in rows]

    def change(self, name: str, change: Callable[[Settings], Settings], *, actor: str) -> None:
        """Change the settings, whatever they are by then."""
        with self._engine.write() as tx:
            settings = change(lock_pipeline(tx, name).settings)
            tx.connection.execute(
                sa.update(pipelines).where(pipelines.c.name == name).values(settings=settings.to_json())
            )
            bump_revision(tx, name)
            tx.record("pipeline.changed", name, actor=actor, detail=settings.to_json())

    def desire(
        self,
        name: str,
        state: DesiredState,
        *,
        actor: str,
        reason: str = "",
        attempt: int | None = None,
        since: int | None = None,
    ) -> None:
        """Say whether it should run.

        :param attempt: who wishes it means this attempt: nothing happens once a newer one has begun.
        :param since: the number of an event: nothing happens once somebody has started the pipeline after it.
        """
        with self._engine.write() as tx:
            pipeline = lock_pipeline(tx, name)
            is_meant = attempt is None or (pipeline.current_attempt or 0) <= attempt
            if is_meant and not has_started_since(tx, name, since):
                desire(tx, name, state, actor=actor, reason=reason)


def desire(tx: Tx, name: str, state: DesiredState, *, actor: str, reason: str) -> None:
    tx.connection.execute(sa.update(pipelines).where(pipelines.c.name == name).values(desired_state=state))
    tx.record(f"pipeline.{state}", name, actor=actor, reason=reason)


def has_started_since(tx: Tx, name: str, since: int | None) -> bool:
    """Whether somebody has said that the pipeline should run, after the event of that number."""
    if since is None:
        return False
    started = sa.exists().where(
        events.c.pipeline == name, events.c.kind == f"pipeline.{DesiredState.RUNNING}", events.c.seq > since
    )
    return bool(tx.connection.execute(sa.select(started)).scalar_one())


def insert_pipeline(tx: Tx, name: str, settings: Settings, identity: str) -> bool:
    """Create the row; False when it is there."""
    exists = tx.connection.execute(sa.select(pipelines.c.name).where(pipelines.c.name == name)).first()
    if exists is not None:
        return False
    tx.connection.execute(
        sa.insert(pipelines).values(
            name=name,
            identity=identity,
            settings=settings.to_json(),
            desired_state=DesiredState.RUNNING,
            next_attempt=1,
            next_checkpoint=1,
            revision=0,
            created_at=tx.now_sql,
        )
    )
    return True


def lock_pipeline(tx: Tx, name: str) -> Pipeline:
    """Read a pipeline and keep every other writer out until the transaction ends."""
    statement = sa.select(pipelines).where(pipelines.c.name == name).with_for_update()
    return _found(name, tx.connection.execute(statement).mappings().first())


def read_pipeline(tx: Tx, name: str) -> Pipeline:
    statement = sa.select(pipelines).where(pipelines.c.name == name)
    return _found(name, tx.connection.execute(statement).mappings().first())


def bump_revision(tx: Tx, name: str) -> None:
    """Make plans that cleanup drew up before now void."""
    tx.connection.execute(
        sa.update(pipelines).where(pipelines.c.name == name).values(revision=pipelines.c.revision + 1)
    )


def _found(name: str, row: sa.RowMapping | None) -> Pipeline:
    if row is None:
        raise NotFound(f"There is no pipeline {name!r}. `ckpt pipelines` lists them; `ckpt init {name}` makes one.")
    return pipeline_of(row)
