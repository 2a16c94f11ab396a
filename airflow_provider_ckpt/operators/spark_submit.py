"""Running a pipeline: every execution is a new attempt, which fences whatever ran before."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from airflow_provider_ckpt.operators.base import DEFAULT_CONN_ID, WAITING, given, hook_of, key_of, opened
from airflow_provider_ckpt.protocol.records import Attempt, AttemptStatus, DesiredState
from airflow_provider_ckpt.triggers.attempt import AttemptTrigger, Running, end_unclaimed, stop_pipeline

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from airflow_provider_ckpt.coordinator.context import Context
    from airflow_provider_ckpt.hooks.ckpt import Access
    from airflow_provider_ckpt.hooks.driver import DriverHook

_OLDER = 5  # attempts before this one whose applications are looked after
_LAST_WORDS = 500  # characters of what spark-submit said
_MAY_BE_LEFT = frozenset({AttemptStatus.SUPERSEDED, AttemptStatus.FAILED})


class CheckpointedSparkSubmitOperator(SparkSubmitOperator):
    """Submits the pipeline's program as its next attempt, and stays with it until it ends.

    ::

        run = CheckpointedSparkSubmitOperator(task_id="run", pipeline="orders", application="orders.py")

    Every execution (first start, retry, clear, or Airflow resetting a task that it has lost sight of) plans a new
    attempt from the restart ladder, which fences the one before: two drivers may run for a moment, and only the newer
    one counts. In cluster mode the task then waits in the triggerer, which asks the cluster too: an application that
    ends before it has claimed its attempt, or does not claim it within `claim_timeout`, fails the attempt; one that was
    replaced or is lost is ended through the cluster. In client mode the task holds the driver, and ends it when a newer
    attempt takes over. A driver that fails is not retried here: the restore Dag decides. A task that is killed stops
    the pipeline, and its driver ends by itself; the pipeline stays stopped until somebody clears the task or starts it.

    :param pipeline: the pipeline's name. (templated)
    :param attempt: a planned attempt to run; None, or one that has run already: plan the next. (templated)
    :param settings: the pipeline's settings, as `ckpt pipelines NAME --set` takes them; brought up to date first.
    :param savepoint_on_kill: the name of a savepoint to take when the task is killed. (templated)
    :param ckpt_conn_id: the connection to the metastore and the storage. (templated)

    The rest is as in SparkSubmitOperator. The store's URL reaches the driver in a file for its owner alone, which must
    be readable where `spark-submit` runs.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "pipeline",
        "attempt",
        "savepoint_on_kill",
        "ckpt_conn_id",
    )

    def __init__(
        self,
        *,
        pipeline: str,
        attempt: Any = None,
        settings: Mapping[str, str] | None = None,
        savepoint_on_kill: str = "",
        ckpt_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"name": pipeline, "durable": False, **kwargs})
        self.pipeline = pipeline
        self.attempt = attempt
        self.settings = settings
        self.savepoint_on_kill = savepoint_on_kill
        self.ckpt_conn_id = ckpt_conn_id
        self._stopper = ""
        self._newest = 0  # the attempt that this execution runs or is about to plan
        self._since: int | None = None  # the newest event when this execution began: a start after it is not undone
        self._driver: DriverHook | None = None

    def execute(self, context: "TaskContext") -> None:
        self._stopper = f"airflow killed {key_of(context)}"
        with opened(self.ckpt_conn_id, context) as ckpt:
            access = hook_of(self.ckpt_conn_id).access()
            self._declare(ckpt)
            self._wish_to_run(ckpt)
            attempt = self._planned(ckpt) or self._plan(ckpt, access)
            self._newest = attempt
            self._wish_to_run(ckpt)  # the execution before this one may have been ended meanwhile
            self._end_older(ckpt, attempt)
            self.log.info("Attempt %d of %s is submitted.", attempt, self.pipeline)
            last_words = self._submit(ckpt, access, attempt)
            self._conclude(ckpt, attempt, last_words)

    def resume(self, context: "TaskContext", event: dict[str, Any]) -> None:
        with opened(self.ckpt_conn_id, context) as ckpt:
            self._conclude(ckpt, event["attempt"], event.get("why") or "it was not heard of any more")

    def on_kill(self) -> None:
        """Airflow gives a task five seconds: enough to say that the pipeline is to stop, and its driver sees it."""
        if not self._stopper:
            return
        access, running = hook_of(self.ckpt_conn_id).access(), self._running()
        stop_pipeline(access, running, self.savepoint_on_kill, self._stopper)
        application = None if self._driver is None else self._driver.submitted
        if application is not None:
            end_unclaimed(access, running, dict(application.to_json()), self._stopper)

    def _running(self) -> Running:
        return Running(pipeline=self.pipeline, attempt=self._newest, since=self._since)

    def _declare(self, ckpt: "Context") -> None:
        from airflow_provider_ckpt.coordinator.declaring import declare

        pipeline = declare(ckpt.store, self.pipeline, self.settings or {}, actor=ckpt.actor)
        self._newest = (pipeline.current_attempt or 0) + 1

    def _wish_to_run(self, ckpt: "Context") -> None:
        """A pipeline that was stopped by a person stays stopped, unless it was by killing this task."""
        pipeline = ckpt.store.pipelines.get(self.pipeline)
        if pipeline.desired_state is not DesiredState.RUNNING:
            self._start_again(ckpt)
        self._since = ckpt.store.events.position(self.pipeline)

    def _start_again(self, ckpt: "Context") -> None:
        stopped = ckpt.store.events.last(self.pipeline, f"pipeline.{DesiredState.STOPPED}")
        if stopped is None or stopped.actor != self._stopper:
            raise AirflowSkipException(
                f"Pipeline {self.pipeline} is meant to be stopped. Say `ckpt pipelines {self.pipeline} --start`, and "
                "clear this task."
            )
        ckpt.store.pipelines.desire(self.pipeline, DesiredState.RUNNING, actor=ckpt.actor, reason="run again")

    def _planned(self, ckpt: "Context") -> int | None:
        """The attempt that a restore has planned for this run, unless somebody has run it already."""
        wanted = given(self.attempt)
        current = ckpt.store.pipelines.get(self.pipeline).current_attempt
        if wanted is None or current is None or int(wanted) != current:
            return None
        attempt = ckpt.store.attempts.get(self.pipeline, current)
        return current if attempt.status is AttemptStatus.PLANNED else None

    def _plan(self, ckpt: "Context", access: "Access") -> int:
        from airflow_provider_ckpt.coordinator.restore import RestoreOptions, restore
        from airflow_provider_ckpt.spark.sinks.opening import reach_sinks
        from airflow_provider_ckpt.spark.tips import tip_checker

        options = RestoreOptions(
            committers=reach_sinks(ckpt, self.pipeline),
            tip_damage=tip_checker(access.places.work),
            take_over=True,
        )
        return restore(ckpt, self.pipeline, options, on_wait=partial(self.log.info, WAITING)).attempt.number

    def _end_older(self, ckpt: "Context", attempt: int) -> None:
        """End what older attempts have left on a cluster: they are fenced, and have no task that waits for them."""
        for each in ckpt.store.attempts.newest(self.pipeline, before=attempt, limit=_OLDER):
            if each.status in _MAY_BE_LEFT:
                _end_application(each)

    def _submit(self, ckpt: "Context", access: "Access", attempt: int) -> str:
        """Hold the driver in client mode, and give back its last words; in cluster mode wait in the triggerer."""
        from airflow_provider_ckpt.hooks.driver import hold, told

        with told(self._get_hook(), access, self.pipeline, attempt) as hook:
            self._driver = hook
            ckpt.store.attempts.note_submitted(self.pipeline, attempt)
            if hook.is_cluster_mode:
                self._wait(attempt, self._submit_to_cluster(ckpt, hook, attempt))
            return hold(hook, access, (self.pipeline, attempt), self.application)

    def _submit_to_cluster(self, ckpt: "Context", hook: "DriverHook", attempt: int) -> dict[str, Any] | None:
        """What the cluster knows the driver by; one that nobody wants any more is ended at once."""
        try:
            application = hook.submit_and_leave(self.application)
        except (AirflowException, OSError) as error:
            self._conclude(ckpt, attempt, f"it could not be submitted: {str(error)[-_LAST_WORDS:]}")
            raise
        if application is None:
            return None
        document = dict(application.to_json())
        if not ckpt.store.attempts.note_submitted(self.pipeline, attempt, document, application.id):
            application.kill()
        return document

    def _wait(self, attempt: int, application: dict[str, Any] | None) -> None:
        self.defer(
            trigger=AttemptTrigger(
                ckpt_conn_id=self.ckpt_conn_id,
                pipeline=self.pipeline,
                attempt=attempt,
                savepoint=self.savepoint_on_kill,
                stopper=self._stopper,
                since=self._since,
                application=application,
            ),
            method_name="resume",
        )

    def _conclude(self, ckpt: "Context", number: int, last_words: str) -> None:
        """What became of the attempt is what the store says; a driver that ended without a word has failed."""
        attempt = ckpt.store.attempts.get(self.pipeline, number)
        if attempt.is_alive and last_words:
            ckpt.store.attempts.end(self.pipeline, number, AttemptStatus.FAILED, actor=ckpt.actor, failure=last_words)
            attempt = ckpt.store.attempts.get(self.pipeline, number)
        if attempt.status in _MAY_BE_LEFT:
            _end_application(attempt)
        match attempt.status:
            case AttemptStatus.FINISHED | AttemptStatus.STOPPED:
                self.log.info("Attempt %d of %s is %s.", number, self.pipeline, attempt.status)
            case AttemptStatus.SUPERSEDED:
                raise AirflowSkipException(f"Attempt {number} of {self.pipeline} was replaced by a newer one.")
            case _:
                why = attempt.failure or "its driver has ended and did not say so: does the program use the agent?"
                raise AirflowFailException(f"Attempt {number} of {self.pipeline} has failed: {why}")


def _end_application(attempt: Attempt) -> None:
    """Through the cluster, where it is known there; one that has ended already stays as it is."""
    from airflow_provider_ckpt.hooks.cluster import Application

    if attempt.submission is not None:
        Application.from_json(attempt.submission).kill()
