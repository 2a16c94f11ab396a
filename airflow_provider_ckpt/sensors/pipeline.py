"""Waiting for a pipeline: that it is well, that it has a checkpoint young enough."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ckpt.operators.base import given, opened
from airflow_provider_ckpt.protocol.objectives import Problem, ProblemKind
from airflow_provider_ckpt.sensors.base import CkptSensor
from airflow_provider_ckpt.triggers.pipeline import PipelineTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from airflow_provider_ckpt.coordinator.context import Context


class PipelineSensor(CkptSensor):
    """What both have in common."""

    def trigger(self) -> PipelineTrigger:
        return PipelineTrigger(ckpt_conn_id=self.ckpt_conn_id, pipeline=self.pipeline, every=float(self.poke_interval))

    def poke(self, context: "TaskContext") -> bool:
        with opened(self.ckpt_conn_id, context) as ckpt:
            missing = self.what_is_missing(ckpt)
        if missing is not None:
            self.log.info("%s: %s", self.pipeline, missing)
        return missing is None

    @abstractmethod
    def what_is_missing(self, ckpt: "Context") -> str | None:
        """Why it waits; None when it does not."""


class PipelineHealthySensor(PipelineSensor):
    """Waits until a pipeline runs well: its attempt has committed a batch of its own, and nothing is wrong with it.

    :param attempt: wait for this attempt or a later one, and fail when that one fails or falls silent; None: for
        whichever is current, however many fail before. (templated)
    """

    template_fields: Sequence[str] = (*PipelineSensor.template_fields, "attempt")

    def __init__(self, *, attempt: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.attempt = attempt

    def what_is_missing(self, ckpt: "Context") -> str | None:
        from airflow_provider_ckpt.coordinator.health import health

        found = health(ckpt, self.pipeline)
        least = int(given(self.attempt) or 0)
        if found.attempt is None or found.attempt.number < least:
            return f"attempt {least or 1} has not begun"
        if least:
            _check_alive(found.problems)
        if ckpt.store.events.last(self.pipeline, "attempt.progressed", attempt=found.attempt.number) is None:
            return f"attempt {found.attempt.number} is {found.attempt.status} and has not committed a batch yet"
        return "; ".join(map(str, found.problems)) or None


def _check_alive(problems: Sequence[Problem]) -> None:
    """Whoever waits for an attempt that has ended keeps others from starting the next one: a restore Dag runs once.

    :raises AirflowFailException: when it is down or silent.
    """
    for each in problems:
        if each.kind in (ProblemKind.DOWN, ProblemKind.SILENT):
            raise AirflowFailException(f"It did not become well: {each}")


class CheckpointFreshSensor(PipelineSensor):
    """Waits until the newest completed checkpoint is young enough, or newer than another.

    :param max_age: how old it may be, from when it was triggered.
    :param newer_than: a checkpoint's id that it must be newer than. (templated)
    """

    template_fields: Sequence[str] = (*PipelineSensor.template_fields, "newer_than")

    def __init__(self, *, max_age: timedelta | None = None, newer_than: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_age = max_age
        self.newer_than = newer_than

    def what_is_missing(self, ckpt: "Context") -> str | None:
        from airflow_provider_ckpt.coordinator.health import health
        from airflow_provider_ckpt.protocol.duration import approximate

        found = health(ckpt, self.pipeline)
        if found.newest is None or found.age is None:
            return "there is no completed checkpoint"
        if self.max_age is not None and found.age > self.max_age:
            return f"{found.newest.ref} is {approximate(found.age)} old"
        after = given(self.newer_than)
        if after is not None and found.newest.ref.id <= int(after):
            return f"{found.newest.ref} is the newest"
        return None
