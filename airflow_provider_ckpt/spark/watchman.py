"""The driver watches its own pipeline: a dead scheduler or a paused Dag must not mean silence.

Airflow goes first: what it has told is not told again. A problem is told from here when it was there at two looks in a
row and nobody has told it.
"""

import logging
import threading
from collections.abc import Sequence

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.sla import judge
from airflow_provider_ckpt.protocol.objectives import Problem, ProblemKind
from airflow_provider_ckpt.spark.telling import Tell

_log = logging.getLogger(__name__)


class Watchman:
    """A thread that looks every `every` seconds."""

    def __init__(self, context: Context, pipeline: str, tell: Tell, *, every: float) -> None:
        self._context = context
        self._pipeline = pipeline
        self._tell = tell
        self._every = every
        self._before: frozenset[ProblemKind] = frozenset()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ckpt-watchman", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)

    def _watch(self) -> None:
        while not self._stopped.wait(self._every):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - whatever it is: a watchman who is gone tells nobody
                _log.warning("Whether %s has problems can not be told now: %s", self._pipeline, error)

    def look(self) -> None:
        problems = judge(self._context, self._pipeline)
        now = frozenset(each.kind for each in problems)
        self._raise([each for each in problems if each.kind in self._before], now ^ self._before)
        self._before = now

    def _raise(self, problems: Sequence[Problem], unsure: frozenset[ProblemKind]) -> None:
        alerts = self._context.store.alerts
        sees = frozenset(ProblemKind) - {ProblemKind.PAUSED} - unsure
        for alert in alerts.raise_for(self._pipeline, problems, actor=self._context.actor, sees=sees):
            try:
                self._tell(alert)
            except Exception as error:  # noqa: BLE001 - whatever a server answers: people were not told
                _log.warning("Nobody could be told of %s: %s", alert, error)
                alerts.take_back(alert, actor=self._context.actor, reason=str(error))
