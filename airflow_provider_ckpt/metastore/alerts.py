"""Alerts: what people were told of, as events, so that nobody tells it twice."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from airflow_provider_ckpt.metastore.engine import Engine, Tx
from airflow_provider_ckpt.metastore.pipelines import lock_pipeline
from airflow_provider_ckpt.metastore.rows import event_of
from airflow_provider_ckpt.metastore.schema import events
from airflow_provider_ckpt.protocol.alerts import Alert, AlertState
from airflow_provider_ckpt.protocol.objectives import Problem, ProblemKind
from airflow_provider_ckpt.protocol.records import Event

_SILENCED, _HEARD = "alerts.silenced", "alerts.heard"


class Alerts:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def raise_for(
        self,
        pipeline: str,
        problems: Sequence[Problem],
        *,
        actor: str,
        sees: Collection[ProblemKind] = frozenset(ProblemKind),
    ) -> list[Alert]:
        """What is to be told now, and counts as told from now on; nothing during announced maintenance.

        :param sees: what the watcher can see: of other kinds it does not say that they are over.
        """
        with self._engine.write() as tx:
            settings = lock_pipeline(tx, pipeline).settings
            told, now = _told(tx, pipeline), tx.now()
            if _silent_until(told, now) is not None:
                return []
            due = _due(pipeline, problems, told, now, settings.objectives.remind_every)
            alerts = [each for each in due if each.kind in sees]
            for each in alerts:
                tx.record(_kind(each.kind, each.state), pipeline, actor=actor, reason=each.text)
            return alerts

    def take_back(self, alert: Alert, *, actor: str, reason: str) -> None:
        """It did not reach anybody: whoever looks next tells it again."""
        with self._engine.write() as tx:
            lock_pipeline(tx, alert.pipeline)
            tx.record(_lost(alert.kind), alert.pipeline, actor=actor, reason=reason)

    def open(self, pipeline: str) -> dict[ProblemKind, Event]:
        """What people were told of and is not over, by when they heard of it last."""
        with self._engine.read() as tx:
            return _open(_told(tx, pipeline))

    def silence(self, pipeline: str, time: timedelta, *, actor: str, reason: str) -> datetime:
        """Announce maintenance: nobody is told of anything until then."""
        with self._engine.write() as tx:
            lock_pipeline(tx, pipeline)
            until = tx.now() + time
            tx.record(_SILENCED, pipeline, actor=actor, reason=reason, detail={"until": until.isoformat()})
            return until

    def end_silence(self, pipeline: str, *, actor: str, reason: str = "") -> None:
        with self._engine.write() as tx:
            lock_pipeline(tx, pipeline)
            tx.record(_HEARD, pipeline, actor=actor, reason=reason)

    def silent_until(self, pipeline: str) -> datetime | None:
        with self._engine.read() as tx:
            return _silent_until(_told(tx, pipeline), tx.now())


def _kind(kind: ProblemKind, state: AlertState) -> str:
    return f"alert.{kind}.{'over' if state is AlertState.OVER else 'raised'}"


def _lost(kind: ProblemKind) -> str:
    return f"alert.{kind}.lost"


def _told(tx: Tx, pipeline: str) -> dict[str, Event]:
    """The newest event of every kind of alert and of silence."""
    kinds = [_SILENCED, _HEARD, *map(_lost, ProblemKind)]
    kinds += [_kind(each, state) for each in ProblemKind for state in (AlertState.NEW, AlertState.OVER)]
    newest = sa.select(sa.func.max(events.c.seq)).where(events.c.pipeline == pipeline, events.c.kind.in_(kinds))
    rows = tx.connection.execute(sa.select(events).where(events.c.seq.in_(newest.group_by(events.c.kind)))).mappings()
    return {row["kind"]: event_of(row) for row in rows}


def _open(told: Mapping[str, Event]) -> dict[ProblemKind, Event]:
    found = {}
    for kind in ProblemKind:
        raised = told.get(_kind(kind, AlertState.NEW))
        ends = (told.get(_kind(kind, AlertState.OVER)), told.get(_lost(kind)))
        if raised is not None and all(each is None or each.seq < raised.seq for each in ends):
            found[kind] = raised
    return found


def _silent_until(told: Mapping[str, Event], now: datetime) -> datetime | None:
    silenced, heard = told.get(_SILENCED), told.get(_HEARD)
    if silenced is None or (heard is not None and heard.seq > silenced.seq):
        return None
    until = datetime.fromisoformat(str(silenced.detail["until"]))
    return until if until > now else None


def _due(
    pipeline: str,
    problems: Sequence[Problem],
    told: Mapping[str, Event],
    now: datetime,
    remind_every: timedelta | None,
) -> list[Alert]:
    is_open, alerts = _open(told), []
    for problem in problems:
        known = is_open.pop(problem.kind, None)
        if known is None:
            alerts.append(Alert(pipeline=pipeline, kind=problem.kind, state=AlertState.NEW, text=problem.text))
        elif remind_every is not None and now - known.at >= remind_every:
            alerts.append(Alert(pipeline=pipeline, kind=problem.kind, state=AlertState.LASTS, text=problem.text))
    for kind, event in is_open.items():
        alerts.append(Alert(pipeline=pipeline, kind=kind, state=AlertState.OVER, text=event.reason))
    return alerts
