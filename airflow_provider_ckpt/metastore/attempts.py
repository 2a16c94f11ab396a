"""Attempts: the fencing token, the claim of the one driver that may run it, heartbeats and endings.

A restore makes an attempt in two steps. `fence` numbers it, which fences every older attempt at once, so that nothing
moves any more while the restore chooses; `settle` says where it starts from, and a driver can claim it.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from airflow_provider_ckpt.metastore import guards
from airflow_provider_ckpt.metastore.checkpoints import read_in_flight
from airflow_provider_ckpt.metastore.engine import Engine, Tx, clean
from airflow_provider_ckpt.metastore.events import read_last
from airflow_provider_ckpt.metastore.failing import fail_checkpoint
from airflow_provider_ckpt.metastore.leases import unpin_restores
from airflow_provider_ckpt.metastore.pipelines import bump_revision, lock_pipeline, read_pipeline
from airflow_provider_ckpt.metastore.rows import attempt_of
from airflow_provider_ckpt.metastore.schema import attempts, pipelines
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.cut import Graph, graph_from_json
from airflow_provider_ckpt.protocol.errors import Fenced, LeaseLost, LostRace, NotFound, Refused
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import (
    ALIVE,
    Attempt,
    AttemptStatus,
    Checkpoint,
    DesiredState,
    Lease,
    Pipeline,
    Ref,
    Rung,
)
from airflow_provider_ckpt.protocol.settings import settings_from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a heartbeat brings back: whether to go on, and what there is to do."""

    is_current: bool
    desired_state: DesiredState
    in_flight: Checkpoint | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where an attempt starts from, and which attempt's line it continues."""

    rung: Rung
    parent: int | None = None
    fork_at: int | None = None
    restored_from: int | None = None
    accepted: tuple[str, ...] = ()  # sinks in which a person accepts duplicates
    wish: str = ""  # what a person has chosen; "": nothing


class Attempts:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get(self, pipeline: str, number: int) -> Attempt:
        with self._engine.read() as tx:
            attempt = read_attempt(tx, pipeline, number)
        if attempt is None:
            raise NotFound(f"Pipeline {pipeline} has no attempt {number}.")
        return attempt

    def of(self, pipeline: str) -> list[Attempt]:
        """All attempts, oldest first."""
        with self._engine.read() as tx:
            statement = sa.select(attempts).where(attempts.c.pipeline == pipeline).order_by(attempts.c.number)
            return [attempt_of(row) for row in tx.connection.execute(statement).mappings()]

    def newest(self, pipeline: str, *, before: int | None = None, limit: int = 20) -> list[Attempt]:
        """The newest attempts below number `before`, newest first."""
        statement = sa.select(attempts).where(attempts.c.pipeline == pipeline)
        if before is not None:
            statement = statement.where(attempts.c.number < before)
        with self._engine.read() as tx:
            rows = tx.connection.execute(statement.order_by(attempts.c.number.desc()).limit(limit)).mappings()
            return [attempt_of(row) for row in rows]

    def graph(self, pipeline: str, number: int) -> Graph:
        with self._engine.read() as tx:
            return read_graph(tx, pipeline, number)

    def living(self, pipeline: str) -> Attempt | None:
        """The running attempt, when its heartbeat is younger than its time to live."""
        with self._engine.read() as tx:
            found = _read_living(tx, read_pipeline(tx, pipeline))
            is_right = found is None or found.heartbeat_at is None or found.heartbeat_at <= tx.now()
        if is_right:
            return found
        with self._engine.write() as tx:
            _mend_heartbeats(tx)
            return _read_living(tx, read_pipeline(tx, pipeline))

    def fence(self, lease: Lease, *, actor: str, take_over: bool = False, dead: int | None = None) -> Attempt:
        """Number the next attempt: older ones are fenced from now on, and what they had not decided has failed.

        :param take_over: also where the current attempt is alive.
        :param dead: the attempt whose driver is gone for certain, however young its heartbeat is.
        :raises LeaseLost: when the restore lease is not held any more.
        :raises Refused: when a driver is alive by now.
        """
        with self._engine.write() as tx:
            living = _read_living(tx, lock_pipeline(tx, lease.pipeline))
            if living is not None and not take_over and living.number != dead:
                raise refuse_living(living)
            number = _take_number(tx, lease)
            _supersede(tx, lease.pipeline, number)
            unpin_restores(tx, lease.pipeline)
            flying = read_in_flight(tx, lease.pipeline)
            if flying is not None:
                reason = f"attempt {number} takes over"
                fail_checkpoint(tx, flying.ref, FailureReason.ATTEMPT_SUPERSEDED, reason, actor=actor)
            _insert(tx, lease.pipeline, number)
            bump_revision(tx, lease.pipeline)
            tx.record("attempt.preparing", lease.pipeline, attempt=number, actor=actor)
            return _read_existing(tx, lease.pipeline, number)

    def settle(self, lease: Lease, number: int, start: Start, *, actor: str, reason: str = "") -> Attempt:
        """Say where a fenced-off attempt starts from: a driver may claim it now.

        :raises LostRace: when the lease, the attempt's turn, or the chosen checkpoint is gone.
        """
        with self._engine.write() as tx:
            lock_pipeline(tx, lease.pipeline)
            conditions = [
                _is_attempt(lease.pipeline, number),
                attempts.c.status == AttemptStatus.PREPARING,
                guards.actor_is_current(lease.pipeline, number),
                guards.holds(tx, lease),
            ]
            if start.restored_from is not None:
                chosen = Ref(lease.pipeline, start.restored_from)
                conditions.append(
                    sa.exists().where(guards.is_checkpoint(chosen), guards.in_phase(Phase.COMMITTING, Phase.COMPLETED))
                )
            settled = tx.connection.execute(
                sa.update(attempts)
                .where(*conditions)
                .values(
                    status=AttemptStatus.PLANNED,
                    planned_at=tx.now_sql,
                    rung=start.rung,
                    parent=start.parent,
                    fork_at=start.fork_at,
                    restored_from=start.restored_from,
                    accepted=list(start.accepted),
                )
            )
            if settled.rowcount != 1:
                raise LostRace(f"Attempt {number} of {lease.pipeline} can not be planned: the restore was overtaken.")
            bump_revision(tx, lease.pipeline)
            tx.record(
                "attempt.planned",
                lease.pipeline,
                attempt=number,
                checkpoint=start.restored_from,
                actor=actor,
                reason=reason or start.rung,
            )
            if start.wish:
                tx.record("restore.chosen", lease.pipeline, attempt=number, actor=actor, reason=start.wish)
            return _read_existing(tx, lease.pipeline, number)

    def note_submitted(self, pipeline: str, number: int, submission: JsonObject | None = None, id_: str = "") -> bool:
        """Say that a driver is on its way, and what the cluster knows it by once it does; False: it is not wanted.

        From the first word on it has `claim_timeout` to claim the attempt.
        """
        with self._engine.write() as tx:
            lock_pipeline(tx, pipeline)
            named = {} if submission is None else {"submission": submission, "application_id": clean(id_)}
            tx.connection.execute(
                sa.update(attempts)
                .where(_is_attempt(pipeline, number))
                .values(submitted_at=sa.func.coalesce(attempts.c.submitted_at, tx.now_sql), **named)
            )
            if submission is not None:
                tx.record("attempt.submitted", pipeline, attempt=number, actor=id_, detail=submission)
            wanted = sa.and_(guards.actor_is_current(pipeline, number), _is_attempt(pipeline, number))
            alive = sa.select(sa.exists().where(wanted, attempts.c.status.in_(sorted(ALIVE))))
            return tx.connection.execute(alive).scalar_one()

    def claim(
        self, pipeline: str, number: int, claim: str, graph: Graph, *, application_id: str = "", host: str = ""
    ) -> Attempt:
        """Become the one driver of an attempt; asking again with the same claim is fine.

        :raises Fenced: when a newer attempt is current.
        :raises LostRace: when another driver has claimed it.
        """
        with self._engine.write() as tx:
            lock_pipeline(tx, pipeline)
            claimed = tx.connection.execute(
                sa.update(attempts)
                .where(
                    _is_attempt(pipeline, number),
                    attempts.c.status == AttemptStatus.PLANNED,
                    guards.actor_is_current(pipeline, number),
                )
                .values(
                    status=AttemptStatus.RUNNING,
                    claim=claim,
                    graph=graph.to_json(),
                    application_id=application_id,
                    host=host,
                    claimed_at=tx.now_sql,
                    heartbeat_at=tx.now_sql,
                )
            )
            if claimed.rowcount != 1:
                _check_claim(tx, pipeline, number, claim)
            else:
                tx.record("attempt.claimed", pipeline, attempt=number, actor=application_id or claim)
            return _read_existing(tx, pipeline, number)

    def declare(self, pipeline: str, number: int, claim: str, graph: Graph) -> None:
        """Say which queries the attempt has by now; a checkpoint that is triggered later expects them all.

        :raises Fenced: when this driver is not the one any more.
        """
        with self._engine.write() as tx:
            lock_pipeline(tx, pipeline)
            declared = tx.connection.execute(
                sa.update(attempts).where(*_is_driver(pipeline, number, claim)).values(graph=graph.to_json())
            )
            if declared.rowcount != 1:
                raise Fenced(f"Attempt {number} of {pipeline} is not this driver's any more: it must end.")

    def look(self, pipeline: str, number: int, claim: str) -> Beat:
        """What a heartbeat brings back, without beating: reads only, so it can be asked often."""
        with self._engine.read() as tx:
            driver = sa.select(sa.exists().where(*_is_driver(pipeline, number, claim)))
            return _beat(tx, pipeline, is_current=tx.connection.execute(driver).scalar_one())

    def heartbeat(self, pipeline: str, number: int, claim: str) -> Beat:
        """Say that the driver lives; learn whether it is still the one, and what is in flight."""
        with self._engine.write() as tx:
            beaten = tx.connection.execute(
                sa.update(attempts).where(*_is_driver(pipeline, number, claim)).values(heartbeat_at=tx.now_sql)
            )
            return _beat(tx, pipeline, is_current=beaten.rowcount == 1)

    def note_progress(self, pipeline: str, number: int, claim: str) -> None:
        """Say, once, that the attempt has committed a batch of its own: it is not only alive, it works."""
        with self._engine.write() as tx:
            lock_pipeline(tx, pipeline)
            driver = sa.select(sa.exists().where(*_is_driver(pipeline, number, claim)))
            if tx.connection.execute(driver).scalar_one():
                tx.record("attempt.progressed", pipeline, attempt=number, actor=claim)

    def note_silence(self, *, actor: str) -> list[Attempt]:
        """Record, once for each attempt, that it should run and has not been heard of for its time to live."""
        with self._engine.read() as tx:
            has_clock_gone_back = tx.connection.execute(sa.select(sa.exists().where(_is_ahead(tx)))).scalar_one()
            silent = _find_silent(tx)
        if has_clock_gone_back:
            with self._engine.write() as tx:
                _mend_heartbeats(tx)
        noted = []
        for name, number in silent:
            with self._engine.write() as tx:
                lock_pipeline(tx, name)
                is_silent = bool(_find_silent(tx, _is_attempt(name, number)))
                if is_silent and read_last(tx, name, "attempt.silent", attempt=number) is None:
                    tx.record("attempt.silent", name, attempt=number, actor=actor)
                    noted.append(_read_existing(tx, name, number))
        return noted

    def end(self, pipeline: str, number: int, status: AttemptStatus, *, actor: str, failure: str | None = None) -> bool:
        """Note that an attempt has ended; what it had not decided has failed. False when it had ended before."""
        with self._engine.write() as tx:
            lock_pipeline(tx, pipeline)
            ended = tx.connection.execute(
                sa.update(attempts)
                .where(_is_attempt(pipeline, number), attempts.c.status.in_(sorted(ALIVE)))
                .values(status=status, ended_at=tx.now_sql, failure=clean(failure) if failure else None)
            )
            if ended.rowcount != 1:
                return False
            flying = read_in_flight(tx, pipeline)
            if flying is not None and flying.attempt == number:
                why = failure or f"attempt {number} is {status}"
                fail_checkpoint(tx, flying.ref, FailureReason.ATTEMPT_ENDED, why, actor=actor)
            tx.record(f"attempt.{status}", pipeline, attempt=number, actor=actor, reason=failure or "")
            return True


def read_attempt(tx: Tx, pipeline: str, number: int | None) -> Attempt | None:
    if number is None:
        return None
    row = tx.connection.execute(sa.select(attempts).where(_is_attempt(pipeline, number))).mappings().first()
    return None if row is None else attempt_of(row)


def refuse_living(attempt: Attempt) -> Refused:
    """Why it is not fenced, and what would do it."""
    return Refused(
        f"Attempt {attempt.number} of {attempt.pipeline} is alive on {attempt.host or 'an unknown host'}: its "
        "heartbeat is younger than its time to live. Stop it first, fence it with "
        f"`ckpt restore {attempt.pipeline} --take-over`, or say --old-attempt-is-dead when it is gone for certain."
    )


def _read_living(tx: Tx, pipeline: Pipeline) -> Attempt | None:
    attempt = read_attempt(tx, pipeline.name, pipeline.current_attempt)
    if attempt is None or attempt.status is not AttemptStatus.RUNNING or attempt.heartbeat_at is None:
        return None
    return attempt if tx.now() - attempt.heartbeat_at < pipeline.settings.attempt_ttl else None


def _is_ahead(tx: Tx) -> sa.ColumnElement[bool]:
    """A heartbeat of the future: the clock was set back since."""
    return sa.and_(attempts.c.status == AttemptStatus.RUNNING, attempts.c.heartbeat_at > tx.now_sql)


def _mend_heartbeats(tx: Tx) -> None:
    """Else a dead driver would look alive until the clock is there again."""
    tx.connection.execute(sa.update(attempts).where(_is_ahead(tx)).values(heartbeat_at=tx.now_sql))


def read_graph(tx: Tx, pipeline: str, number: int) -> Graph:
    document = tx.connection.execute(sa.select(attempts.c.graph).where(_is_attempt(pipeline, number))).scalar()
    return graph_from_json(document or [])


def _is_driver(pipeline: str, number: int, claim: str) -> list[sa.ColumnElement[bool]]:
    return [
        _is_attempt(pipeline, number),
        attempts.c.claim == claim,
        attempts.c.status == AttemptStatus.RUNNING,
        guards.actor_is_current(pipeline, number),
    ]


def _beat(tx: Tx, pipeline: str, *, is_current: bool) -> Beat:
    return Beat(
        is_current=is_current,
        desired_state=read_pipeline(tx, pipeline).desired_state,
        in_flight=read_in_flight(tx, pipeline) if is_current else None,
    )


def _find_silent(tx: Tx, *conditions: sa.ColumnElement[bool]) -> list[tuple[str, int]]:
    """Pipelines that are meant to run, and their current attempts that were not heard of for their time to live."""
    is_current = sa.and_(attempts.c.pipeline == pipelines.c.name, attempts.c.number == pipelines.c.current_attempt)
    statement = (
        sa.select(pipelines.c.name, pipelines.c.settings, attempts.c.number, attempts.c.heartbeat_at)
        .join(attempts, is_current)
        .where(pipelines.c.desired_state == DesiredState.RUNNING, attempts.c.status == AttemptStatus.RUNNING)
        .where(*conditions)
    )
    now = tx.now()
    return [
        (row.name, row.number)
        for row in tx.connection.execute(statement)
        if now - row.heartbeat_at > settings_from_json(row.settings).attempt_ttl
    ]


def _take_number(tx: Tx, lease: Lease) -> int:
    taken: int | None = tx.connection.execute(
        sa.update(pipelines)
        .where(pipelines.c.name == lease.pipeline, guards.holds(tx, lease))
        .values(current_attempt=pipelines.c.next_attempt, next_attempt=pipelines.c.next_attempt + 1)
        .returning(pipelines.c.current_attempt)
    ).scalar()
    if taken is None:
        raise LeaseLost(f"The restore of pipeline {lease.pipeline} by {lease.owner} has lost its lease.")
    return taken


def _supersede(tx: Tx, pipeline: str, by: int) -> None:
    tx.connection.execute(
        sa.update(attempts)
        .where(attempts.c.pipeline == pipeline, attempts.c.number < by, attempts.c.status.in_(sorted(ALIVE)))
        .values(status=AttemptStatus.SUPERSEDED, ended_at=tx.now_sql)
    )


def _insert(tx: Tx, pipeline: str, number: int) -> None:
    tx.connection.execute(
        sa.insert(attempts).values(
            pipeline=pipeline,
            number=number,
            status=AttemptStatus.PREPARING,
            rung=Rung.FRESH,
            numbered_at=tx.now_sql,
        )
    )


def _check_claim(tx: Tx, pipeline: str, number: int, claim: str) -> None:
    row = tx.connection.execute(sa.select(attempts).where(_is_attempt(pipeline, number))).mappings().first()
    if row is None:
        raise NotFound(f"Pipeline {pipeline} has no attempt {number} to claim. `ckpt restore {pipeline}` plans one.")
    current = read_pipeline(tx, pipeline).current_attempt
    if current != number or row["status"] not in (AttemptStatus.PLANNED, AttemptStatus.RUNNING):
        raise Fenced(
            f"Attempt {number} of {pipeline} is {row['status']}; attempt {current} is current. This driver must not "
            f"run; `ckpt restore {pipeline}` plans the next attempt."
        )
    if row["claim"] != claim:
        raise LostRace(
            f"Attempt {number} of {pipeline} was claimed by another driver: {row['application_id'] or row['claim']} "
            f"on {row['host'] or 'an unknown host'}. This one must end. When the other is dead, "
            f"`ckpt restore {pipeline}` plans the next attempt."
        )


def _read_existing(tx: Tx, pipeline: str, number: int) -> Attempt:
    row = tx.connection.execute(sa.select(attempts).where(_is_attempt(pipeline, number))).mappings().one()
    return attempt_of(row)


def _is_attempt(pipeline: str, number: int) -> sa.ColumnElement[bool]:
    return sa.and_(attempts.c.pipeline == pipeline, attempts.c.number == number)
