"""The driver watches its own pipeline: a dead scheduler or a paused Dag must not mean silence.

Airflow goes first: what it has told is not told again. A problem is told from here when it was there at two looks in a
row and nobody has told it. The second look comes a little sooner, so that people hear of it within twice the period.
"""

import logging
import threading
from collections.abc import Sequence

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.sla import judge
from airflow_provider_ckpt.protocol.objectives import Problem, ProblemKind
from airflow_provider_ckpt.spark.telling import Tell

_log = logging.getLogger(__name__)
_SOONER = 0.75  # of the period, until the second look


class Watchman:
    """A thread that looks every `every` seconds, and a little sooner at what it has seen only once."""

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
        pause = self._every
        while not self._stopped.wait(pause):
            try:
                pause = self.look()
            except Exception as error:  # noqa: BLE001 - whatever it is: a watchman who is gone tells nobody
                _log.warning("Whether %s has problems can not be told now: %s", self._pipeline, error)

    def look(self) -> float:
        """Look once.

        :return: the seconds until the next look.
        """
        problems = judge(self._context, self._pipeline)
        now = frozenset(each.kind for each in problems)
        unsure = now ^ self._before
        self._raise([each for each in problems if each.kind in self._before], unsure)
        self._before = now
        return self._every * _SOONER if unsure else self._every

    def _raise(self, problems: Sequence[Problem], unsure: frozenset[ProblemKind]) -> None:
        alerts = self._context.store.alerts
        sees = frozenset(ProblemKind) - {ProblemKind.PAUSED} - unsure
        for alert in alerts.raise_for(self._pipeline, problems, actor=self._context.actor, sees=sees):
            try:
                self._tell(alert)
            except Exception as error:  # noqa: BLE001 - whatever a server answers: people were not told
                _log.warning("Nobody could be told of %s: %s", alert, error)
                alerts.take_back(alert, actor=self._context.actor, reason=str(error))
