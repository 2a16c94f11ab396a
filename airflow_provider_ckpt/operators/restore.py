"""Bringing a pipeline back: decide, ask a person where something would be lost or doubled, plan, start."""

import random
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_ckpt.links.run import RunLink
from airflow_provider_ckpt.operators.base import (
    DEFAULT_CONN_ID,
    WAITING,
    CkptOperator,
    given,
    hook_of,
    opened,
    ref_of,
    start_dag,
)
from airflow_provider_ckpt.protocol.metrics import of_restored
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.recovery import Choice, Policy

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from airflow_provider_ckpt.coordinator.context import Context
    from airflow_provider_ckpt.coordinator.restore import RestoreOptions

_OWNER_LENGTH = 200  # what the store's column takes; a run's id makes it unique, at its end


class RestoringOperator(CkptOperator):
    """What deciding about a restore and doing it have in common: where to, and what may be done without asking.

    :param to: a checkpoint's id or a savepoint's name; None: the best rung of the ladder. (templated)
    :param as_of: the newest checkpoint that was triggered by this time. (templated)
    :param accept_duplicates: sinks that may see rows twice, by name. (templated)
    :param allow_fallback: go past corrupt checkpoints to an older one.
    :param allow_fresh_start: start from nothing when nothing usable is there.
    """

    template_fields: Sequence[str] = (*CkptOperator.template_fields, "to", "as_of", "accept_duplicates")

    def __init__(
        self,
        *,
        to: Any = None,
        as_of: Any = None,
        accept_duplicates: Any = None,
        allow_fallback: bool = True,
        allow_fresh_start: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.to = to
        self.as_of = as_of
        self.accept_duplicates = accept_duplicates
        self.allow_fallback = allow_fallback
        self.allow_fresh_start = allow_fresh_start

    @property
    def is_chosen(self) -> bool:
        """Whether a person has named where to start from."""
        return given(self.to) is not None or given(self.as_of) is not None

    def options(self, ckpt: "Context") -> "RestoreOptions":
        """A person who names a target means it: whatever runs is fenced."""
        from airflow_provider_ckpt.coordinator.restore import RestoreOptions
        from airflow_provider_ckpt.coordinator.targets import target_of
        from airflow_provider_ckpt.spark.sinks.opening import reach_sinks
        from airflow_provider_ckpt.spark.tips import tip_checker

        work = hook_of(self.ckpt_conn_id).access().places.work
        return RestoreOptions(
            target=target_of(self.pipeline, to=given(self.to), as_of=given(self.as_of)),
            policy=Policy(
                allow_fallback=self.allow_fallback,
                allow_fresh_start=self.allow_fresh_start,
                accept_duplicates=frozenset(_names(self.accept_duplicates)),
            ),
            committers=reach_sinks(ckpt, self.pipeline),
            tip_damage=tip_checker(work),
            take_over=self.is_chosen,
        )


class DecideRestoreOperator(RestoringOperator):
    """Reads the store and decides whether the pipeline is to be restored now; everything after it is skipped if not.

    It does nothing when the current attempt is alive, was stopped or has finished, or when somebody else restores.
    After a failure the pipeline's restart strategy says when: until then the task waits in the triggerer, and decides
    again. Where the strategy gives up, the task fails, loudly. Where a person has named a target, that is decided.

    :return: what would be restored, and its price.
    """

    def execute(self, context: "TaskContext", event: Any = None) -> dict[str, Any]:
        with self.opened(context) as ckpt:
            if not self.is_chosen:
                self._diagnose(ckpt)
            return self._plan(ckpt)

    def _diagnose(self, ckpt: "Context") -> None:
        from airflow_provider_ckpt.coordinator.diagnosis import Need, diagnose

        found = diagnose(ckpt, self.pipeline, jitter=random.random())  # noqa: S311 - it spreads restarts, no more
        if found.need is Need.NOTHING:
            raise AirflowSkipException(f"{self.pipeline} needs no restore: {found.why}")
        if found.need is Need.PERSON:
            raise AirflowFailException(f"{self.pipeline} is given up: {found.why}")
        self.log.info("%s is to be restored: %s", self.pipeline, found.why)
        if found.after > timedelta(0):
            self.log.info("Its restart strategy waits for %s.", found.after)
            self.defer(trigger=TimeDeltaTrigger(found.after), method_name="execute")

    def _plan(self, ckpt: "Context") -> dict[str, Any]:
        from airflow_provider_ckpt.coordinator.restore import plan_restore

        choice = plan_restore(ckpt, self.pipeline, self.options(ckpt))
        self.log.info("%s would start from %s.", self.pipeline, _describe(choice))
        price, chosen = choice.price, choice.checkpoint
        if chosen is not None and chosen.phase is not Phase.COMPLETED:
            chosen = None  # in flight: it can not be pinned, and no cleanup can take it
        return {
            "start": _describe(choice),
            "checkpoint": None if chosen is None else chosen.ref.id,
            "is_lossy": bool(
                set(price.duplicated) - set(price.accepted_before) or price.rolled_back or price.passed_over
            ),
        }


class ApproveRestoreOperator(ApprovalOperator):
    """Asks a person, in Airflow's UI, where a restore would lose or double something; else it goes on at once.

    The checkpoint that it is about is pinned from the question to the restore: a person may think for longer than
    retention keeps it.

    :param plan: what `DecideRestoreOperator` returned. (templated)
    :param approve_restore: `never`, `on_loss` or `always`.
    :param ckpt_conn_id: the connection to the metastore and the storage. (templated)
    """

    template_fields: Sequence[str] = ("subject", "body", "pipeline", "plan", "ckpt_conn_id")

    def __init__(
        self,
        *,
        pipeline: str,
        plan: Any,
        approve_restore: str = "on_loss",
        ckpt_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(subject=f"Restore {pipeline}?", **kwargs)
        self.pipeline = pipeline
        self.plan = plan
        self.approve_restore = approve_restore
        self.ckpt_conn_id = ckpt_conn_id

    def execute(self, context: "TaskContext") -> Any:
        if self.approve_restore == "always" or (self.approve_restore == "on_loss" and self.plan["is_lossy"]):
            self._pin(context)
            self.body = f"It would start from {self.plan['start']}."
            return super().execute(context)
        self.log.info("Nobody needs to be asked: it starts from %s.", self.plan["start"])
        return None

    def execute_complete(self, context: "TaskContext", event: dict[str, Any]) -> Any:
        if event.get("chosen_options") != [self.APPROVE]:
            with opened(self.ckpt_conn_id, context) as ckpt:
                _unpin(ckpt, self.pipeline, context)
        return super().execute_complete(context, event)

    def _pin(self, context: "TaskContext") -> None:
        if self.plan["checkpoint"] is None:
            return
        ref = ref_of(self.pipeline, self.plan["checkpoint"])
        with opened(self.ckpt_conn_id, context) as ckpt:
            ckpt.store.pins.add(ref, owner=_asker(context), reason="a person is asked whether to restore it")


class RestoreCheckpointOperator(RestoringOperator):
    """Fences whatever still runs, finishes an open commit, chooses where to start, verifies it, and plans the attempt.

    :return: the planned attempt's number.
    """

    def execute(self, context: "TaskContext") -> int:
        from airflow_provider_ckpt.coordinator.restore import restore
        from airflow_provider_ckpt.hooks.stats import emit

        with self.opened(context) as ckpt:
            restored = restore(ckpt, self.pipeline, self.options(ckpt), on_wait=partial(self.log.info, WAITING))
            _unpin(ckpt, self.pipeline, context)
        emit(of_restored(self.pipeline, restored.choice.rung))
        number = restored.attempt.number
        self.log.info("Attempt %d of %s starts from %s.", number, self.pipeline, _describe(restored.choice))
        return number


class StartRunOperator(BaseOperator):
    """Starts the Dag that runs the pipeline, for a planned attempt; the run exists already after a retry: fine.

    :param run_dag_id: the Dag with the `CheckpointedSparkSubmitOperator`. (templated)
    :param attempt: the attempt's number. (templated)
    """

    template_fields: Sequence[str] = ("run_dag_id", "attempt")
    operator_extra_links = (RunLink(),)

    def __init__(self, *, run_dag_id: str, attempt: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run_dag_id = run_dag_id
        self.attempt = attempt

    def execute(self, context: "TaskContext") -> None:
        start_dag(self.run_dag_id, f"attempt-{self.attempt}", conf={"attempt": int(self.attempt)})


def _asker(context: "TaskContext") -> str:
    """Who pins a checkpoint while a person is asked: this run."""
    ti = context["ti"]
    return f"{ti.dag_id}/{ti.run_id}"[-_OWNER_LENGTH:]


def _unpin(ckpt: "Context", pipeline: str, context: "TaskContext") -> None:
    for pin in ckpt.store.pins.of(pipeline):
        if pin.owner == _asker(context):
            ckpt.store.pins.remove(pin.ref, owner=pin.owner, actor=ckpt.actor)


def _describe(choice: Choice) -> str:
    where = f"the {choice.rung}" if choice.checkpoint is None else str(choice.checkpoint.ref)
    return f"{where} ({choice.price})"


def _names(value: Sequence[str] | str | None) -> list[str]:
    """Names as a list, or as a person writes them into a run's configuration: with commas."""
    names = value.split(",") if isinstance(value, str) else (value or ())
    return [name.strip() for name in names if given(name) is not None]
