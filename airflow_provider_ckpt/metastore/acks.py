"""Acknowledgements: the hot path.

A Spark task sends the acks of all the participants it made durable in one statement. Only rows that are still pending,
of a checkpoint that still waits, from the attempt that is still current, change; everything else is told apart
afterwards and kept as evidence.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from airflow_provider_ckpt.metastore import guards
from airflow_provider_ckpt.metastore.engine import Engine, StoreNow, Tx, clean
from airflow_provider_ckpt.metastore.failing import fail_checkpoint
from airflow_provider_ckpt.metastore.pipelines import lock_pipeline
from airflow_provider_ckpt.metastore.rows import ack_row_of, ack_to_json
from airflow_provider_ckpt.metastore.schema import Time, acks, evidence
from airflow_provider_ckpt.protocol.codec import Json
from airflow_provider_ckpt.protocol.errors import NotFound
from airflow_provider_ckpt.protocol.reasons import EVIDENCE, AckOutcome, FailureReason
from airflow_provider_ckpt.protocol.records import Ack, AckRow, AckStatus, ParticipantKind, Ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """n of m have acknowledged."""

    acked: int
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The participants of one kind of one query."""

    query: str
    kind: ParticipantKind
    expected: int
    acked: int
    last_acked_at: datetime | None


class Acks:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def acknowledge(
        self, ref: Ref, attempt: int, sent: Sequence[Ack], *, host: str | None = None
    ) -> dict[str, AckOutcome]:
        """Acknowledge any number of participants at once; says what became of each."""
        documents = _encode(sent)  # before SQLite keeps all others waiting
        with self._engine.write(is_one_statement=True) as tx:
            accepted = _accept(tx, self._engine.dialect, ref, attempt, documents, host)
            others = [ack for ack in sent if ack.participant not in accepted]
            outcomes = dict.fromkeys(accepted, AckOutcome.ACCEPTED)
            if others:
                outcomes |= _classify(tx, ref, attempt, [ack.participant for ack in others])
                _keep_evidence(tx, ref, attempt, others, outcomes, host)
            return outcomes

    def decline(self, ref: Ref, attempt: int, participant: str, message: str, *, host: str | None = None) -> AckOutcome:
        """Say that a participant can not take part: this checkpoint fails, the pipeline goes on."""
        with self._engine.write() as tx:
            lock_pipeline(tx, ref.pipeline)
            declined = tx.connection.execute(
                sa.update(acks)
                .where(
                    guards.is_ack(ref),
                    acks.c.participant == participant,
                    acks.c.status == AckStatus.PENDING,
                    guards.accepts_acks(ref, attempt),
                )
                .values(
                    status=AckStatus.DECLINED, stage="declined", stage_at=tx.now_sql, host=host, message=clean(message)
                )
            )
            if declined.rowcount != 1:
                return _classify(tx, ref, attempt, [participant])[participant]
            why = f"{participant} declined: {message}"
            fail_checkpoint(tx, ref, FailureReason.DECLINED, why, actor=f"attempt {attempt}")
            return AckOutcome.ACCEPTED

    def report_stage(
        self, ref: Ref, attempt: int, participants: Sequence[str], stage: str, *, host: str | None = None
    ) -> None:
        """Say what pending participants are doing, for the blame report and the page."""
        with self._engine.write() as tx:
            tx.connection.execute(
                sa.update(acks)
                .where(
                    guards.is_ack(ref),
                    acks.c.participant.in_(participants),
                    acks.c.status == AckStatus.PENDING,
                    guards.accepts_acks(ref, attempt),
                )
                .values(stage=stage, stage_at=tx.now_sql, host=host)
            )

    def progress(self, ref: Ref) -> Progress:
        counted = sa.select(
            sa.func.count().label("expected"),
            sa.func.coalesce(sa.func.sum(sa.case((acks.c.status == AckStatus.ACKED, 1), else_=0)), 0).label("acked"),
        ).where(guards.is_ack(ref))
        with self._engine.read() as tx:
            row = tx.connection.execute(counted).one()
            return Progress(acked=row.acked, expected=row.expected)

    def has_pending(self, ref: Ref) -> bool:
        """Costs the same for two participants and for twenty thousand."""
        with self._engine.read() as tx:
            pending = sa.exists().where(guards.is_ack(ref), acks.c.status == AckStatus.PENDING)
            return tx.connection.execute(sa.select(pending)).scalar_one()

    def rows(self, ref: Ref, *, after: str = "", limit: int | None = None) -> list[AckRow]:
        """The participants in order of name."""
        statement = sa.select(acks).where(guards.is_ack(ref), acks.c.participant > after)
        with self._engine.read() as tx:
            rows = tx.connection.execute(statement.order_by(acks.c.participant).limit(limit)).mappings()
            return [ack_row_of(row) for row in rows]

    def slowest(
        self, ref: Ref, *, limit: int, offset: int = 0, query: str | None = None, search: str = ""
    ) -> list[AckRow]:
        """Those who have not acknowledged, then those who did so last.

        :param query: only of this query.
        :param search: only those whose names or hosts contain it.
        """
        wanted = [guards.is_ack(ref), *([] if query is None else [acks.c.query == query]), *_containing(search)]
        order = (acks.c.acked_at.is_not(None), acks.c.acked_at.desc(), acks.c.participant)
        names = sa.select(acks.c.participant).where(*wanted).order_by(*order).limit(limit).offset(offset)
        with self._engine.read() as tx:  # the order is found without the documents, which are long
            shown = tx.connection.execute(names).scalars().all()
            statement = sa.select(acks).where(guards.is_ack(ref), acks.c.participant.in_(shown)).order_by(*order)
            return [ack_row_of(row) for row in tx.connection.execute(statement).mappings()]

    def get(self, ref: Ref, participant: str) -> AckRow:
        """:raises NotFound: when it is not a member, or nothing is known of members any more."""
        statement = sa.select(acks).where(guards.is_ack(ref), acks.c.participant == participant)
        with self._engine.read() as tx:
            row = tx.connection.execute(statement).mappings().first()
        if row is None:
            raise NotFound(f"Checkpoint {ref} has no participant {participant!r:.80}.")
        return ack_row_of(row)

    def groups(self, ref: Ref) -> list[Group]:
        """How far each query's participants of each kind are: as many rows as queries and kinds, not participants."""
        is_acked = sa.case((acks.c.status == AckStatus.ACKED, 1), else_=0)
        statement = (
            sa.select(
                acks.c.query,
                acks.c.kind,
                sa.func.count().label("expected"),
                sa.func.sum(is_acked).label("acked"),
                sa.func.max(acks.c.acked_at, type_=Time()).label("last_acked_at"),
            )
            .where(guards.is_ack(ref))
            .group_by(acks.c.query, acks.c.kind)
            .order_by(acks.c.query, acks.c.kind)
        )
        with self._engine.read() as tx:
            return [_group_of(row) for row in tx.connection.execute(statement).mappings()]

    def arrivals(self, ref: Ref, *, every: int) -> list[tuple[int, datetime]]:
        """When the first, and then each so-manieth acknowledgement came: for a curve of a bounded number of steps."""
        turn = sa.func.row_number().over(order_by=acks.c.acked_at)
        arrived = sa.select(turn.label("turn"), acks.c.acked_at).where(guards.is_ack(ref), acks.c.acked_at.is_not(None))
        each = arrived.subquery()
        statement = sa.select(each.c.turn, each.c.acked_at).where((each.c.turn - 1) % every == 0)
        with self._engine.read() as tx:
            return [(row.turn, row.acked_at) for row in tx.connection.execute(statement.order_by(each.c.turn))]

    def pending(self, ref: Ref, *, limit: int = 50, first: Collection[str] = ()) -> list[AckRow]:
        """Those who have not acknowledged, in order of name; those in `first` come first."""
        statement = sa.select(acks).where(guards.is_ack(ref), acks.c.status == AckStatus.PENDING)
        order = (acks.c.participant.not_in(sorted(first)), acks.c.participant)
        with self._engine.read() as tx:
            rows = tx.connection.execute(statement.order_by(*order).limit(limit)).mappings()
            return [ack_row_of(row) for row in rows]

    def evidence(self, ref: Ref) -> list[Mapping[str, Json]]:
        """The acknowledgements that changed nothing, in order of arrival."""
        statement = sa.select(evidence).where(evidence.c.pipeline == ref.pipeline, evidence.c.checkpoint == ref.id)
        with self._engine.read() as tx:
            rows = tx.connection.execute(statement.order_by(evidence.c.seq)).mappings()
            return [{name: row[name] for name in ("participant", "attempt", "outcome", "host", "ack")} for row in rows]


def _containing(text: str) -> list[sa.ColumnElement[bool]]:
    if not text:
        return []
    return [sa.or_(acks.c.participant.contains(text, autoescape=True), acks.c.host.contains(text, autoescape=True))]


def _group_of(row: sa.RowMapping) -> Group:
    return Group(**{**row, "kind": ParticipantKind(row["kind"])})


def _encode(sent: Sequence[Ack]) -> str:
    """All acks as one JSON parameter, which the database reads as rows: one statement whatever their number."""
    documents = {ack.participant: {**ack_to_json(ack), "full_bytes": ack.full_bytes} for ack in sent}
    return json.dumps(documents, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _accept(tx: Tx, dialect: str, ref: Ref, attempt: int, documents: str, host: str | None) -> set[str]:
    parameters = {
        "to_pipeline": ref.pipeline,
        "to_checkpoint": ref.id,
        "from_attempt": attempt,
        "from_host": host,
        "documents": documents,
    }
    if tx.clock is not None:
        parameters["clock"] = tx.clock()
    statement = _acceptance(dialect, has_clock=tx.clock is not None)
    return set(tx.connection.execute(statement, parameters).scalars().all())


@cache
def _acceptance(dialect: str, *, has_clock: bool) -> sa.Executable:
    """The compare-and-set, made once: to make it takes as long as to run it."""
    incoming = _incoming(dialect)
    now = sa.bindparam("clock", type_=Time()) if has_clock else StoreNow()
    return (
        sa.update(acks)
        .where(
            acks.c.pipeline == incoming.c.pipeline,
            acks.c.checkpoint == incoming.c.checkpoint,
            acks.c.participant == incoming.c.participant,
            acks.c.status == incoming.c.expected,
            guards.accepts_acks(_TO, sa.bindparam("from_attempt", type_=sa.Integer)),
        )
        .values(
            status=AckStatus.ACKED,
            stage="acked",
            stage_at=now,
            acked_at=now,
            host=sa.bindparam("from_host", type_=sa.Text),
            ack=incoming.c.ack,
        )
        .returning(acks.c.participant)
    )


_TO = guards.LaterRef(
    sa.bindparam("to_pipeline", type_=acks.c.pipeline.type), sa.bindparam("to_checkpoint", type_=acks.c.checkpoint.type)
)


def _incoming(dialect: str) -> sa.CTE:
    """What was sent, as rows to join with.

    MATERIALIZED keeps the planner from knowing that every row has the same checkpoint and expects PENDING. If it knew,
    it would read all participants that are still pending, with each statement, instead of looking up those it was sent.
    """
    documents = sa.bindparam("documents", type_=sa.Text)
    on_postgresql = dialect == "postgresql"
    each = sa.func.jsonb_each(sa.cast(documents, JSONB)) if on_postgresql else sa.func.json_each(documents)
    sent = each.table_valued("key", "value", name="sent")
    rows = sa.select(
        _TO.pipeline.label("pipeline"),
        _TO.id.label("checkpoint"),
        sa.literal(AckStatus.PENDING, acks.c.status.type).label("expected"),
        sa.type_coerce(sent.c.key, acks.c.participant.type).label("participant"),
        sa.type_coerce(sent.c.value, acks.c.ack.type).label("ack"),
    )
    return rows.cte("incoming").prefix_with("MATERIALIZED")


def _classify(tx: Tx, ref: Ref, attempt: int, participants: Sequence[str]) -> dict[str, AckOutcome]:
    current = tx.connection.execute(sa.select(guards.actor_is_current(ref.pipeline, attempt))).scalar_one()
    if not current:
        return dict.fromkeys(participants, AckOutcome.FENCED)
    known = {
        row.participant: row.status
        for row in tx.connection.execute(
            sa.select(acks.c.participant, acks.c.status).where(guards.is_ack(ref), acks.c.participant.in_(participants))
        )
    }
    return {name: _outcome(known.get(name)) for name in participants}


def _outcome(status: str | None) -> AckOutcome:
    if status is None:
        return AckOutcome.UNKNOWN
    return AckOutcome.LATE if status == AckStatus.PENDING else AckOutcome.DUPLICATE


def _keep_evidence(
    tx: Tx, ref: Ref, attempt: int, sent: Sequence[Ack], outcomes: Mapping[str, AckOutcome], host: str | None
) -> None:
    rows = [
        {
            "pipeline": ref.pipeline,
            "checkpoint": ref.id,
            "participant": ack.participant,
            "attempt": attempt,
            "outcome": outcomes[ack.participant],
            "host": host,
            "ack": ack_to_json(ack),
            "received_at": tx.now(),
        }
        for ack in sent
        if outcomes[ack.participant] in EVIDENCE
    ]
    if rows:
        tx.connection.execute(sa.insert(evidence), rows)
