"""Bugs in what people and Airflow touch: operators, sensors, triggers, and who may do what on the page."""

from tests.mutants.bug import Area, Bug

_RUNNING = "tests/airflow/test_running.py::test"
_OPERATORS = "tests/airflow/test_operators.py::test"
_TRIGGERS = "tests/airflow/test_triggers.py::test"
_SECURITY = "airflow_provider_ckpt/ui/security.py"
_PAGE = "tests/ui/test_security.py::test"

OPERATORS = (
    Bug(
        name="the trigger operator ignores cleanup runs",
        area=Area.OPERATORS,
        file="airflow_provider_ckpt/operators/trigger.py",
        text="active_cleanup_runs=self._count_cleanups(context),",
        replacement="active_cleanup_runs=0,",
        tests=(f"{_OPERATORS}_an_active_cleanup_run_puts_a_checkpoint_off_but_not_for_ever",),
    ),
    Bug(
        name="the trigger operator does not count cleanup runs that are queued",
        area=Area.OPERATORS,
        file="airflow_provider_ckpt/operators/trigger.py",
        text='_ACTIVE = ["queued", "running"]',
        replacement='_ACTIVE = ["running"]',
        tests=(f"{_OPERATORS}_an_active_cleanup_run_puts_a_checkpoint_off_but_not_for_ever",),
    ),
    Bug(
        name="a cleanup Dag that does not exist has no runs, and nobody notices",
        area=Area.OPERATORS,
        file="airflow_provider_ckpt/operators/trigger.py",
        text="        ti.get_dag(self.cleanup_dag_id)\n",
        replacement="",
        tests=(f"{_OPERATORS}_a_cleanup_dag_that_does_not_exist_is_a_typing_error_not_zero_runs",),
    ),
    Bug(
        name="all runs of a Dag have the same key",
        area=Area.OPERATORS,
        file="airflow_provider_ckpt/operators/base.py",
        text='return f"{ti.dag_id}/{ti.run_id}/{ti.task_id}{map_index}"',
        replacement='return f"{ti.dag_id}/{ti.task_id}{map_index}"',
        tests=(f"{_OPERATORS}_a_retried_or_cleared_task_finds_the_checkpoint_that_it_has_started",),
    ),
    Bug(
        name="a checkpoint that is skipped because one is in flight is said to be not due",
        area=Area.OPERATORS,
        file="airflow_provider_ckpt/protocol/triggering.py",
        text="_busy(seen) or _not_due(request, seen)",
        replacement="_not_due(request, seen) or _busy(seen)",
        tests=("tests/unit/test_triggering.py::test_of_two_neighbouring_troubles_the_graver_is_told",),
    ),
    Bug(
        name="completing does not wait for the sinks",
        area=Area.OPERATORS,
        file="airflow_provider_ckpt/operators/complete.py",
        text="_FINISHED = frozenset({Phase.COMPLETED,",
        replacement="_FINISHED = frozenset({Phase.COMMITTING, Phase.COMPLETED,",
        tests=(f"{_OPERATORS}_completing_waits_in_the_triggerer_while_sinks_publish",),
    ),
    Bug(
        name="a person is not asked where a restore loses something",
        area=Area.OPERATORS,
        file="airflow_provider_ckpt/operators/restore.py",
        text='(self.approve_restore == "on_loss" and self.plan["is_lossy"])',
        replacement='(self.approve_restore == "on_loss" and not self.plan)',
        tests=(f"{_OPERATORS}_a_person_is_asked_where_something_would_be_lost",),
    ),
    Bug(
        name="a task that runs again starts a pipeline that a person has stopped",
        area=Area.OPERATORS,
        file="airflow_provider_ckpt/operators/spark_submit.py",
        text="if stopped is None or stopped.actor != self._stopper:",
        replacement="if stopped is None:",
        tests=(f"{_RUNNING}_a_stopped_pipeline_stays_stopped_unless_it_was_stopped_by_killing_this_task",),
    ),
)

SENSORS = (
    Bug(
        name="the sensor for acknowledgements is content with one of them",
        area=Area.SENSORS,
        file="airflow_provider_ckpt/sensors/acks.py",
        text="seen.acked == seen.expected",
        replacement="seen.acked > 0",
        tests=(f"{_OPERATORS}_the_sensor_waits_in_the_triggerer_until_all_have_acknowledged",),
    ),
    Bug(
        name="the sensor for a young checkpoint does not look at its age",
        area=Area.SENSORS,
        file="airflow_provider_ckpt/sensors/pipeline.py",
        text="self.max_age is not None and found.age > self.max_age",
        replacement="self.max_age is not None and found.age is None",
        tests=(f"{_OPERATORS}_sensors_say_what_a_pipeline_lacks",),
    ),
    Bug(
        name="the sensor for acknowledgements fires as soon as it knows who has to acknowledge",
        area=Area.SENSORS,
        file="airflow_provider_ckpt/sensors/acks.py",
        text="(seen.expected is not None and seen.acked == seen.expected)",
        replacement="seen.expected is not None",
        tests=(f"{_OPERATORS}_the_sensor_waits_in_the_triggerer_until_all_have_acknowledged",),
    ),
    Bug(
        name="the sensor for health is content with an older attempt",
        area=Area.SENSORS,
        file="airflow_provider_ckpt/sensors/pipeline.py",
        text="if found.attempt is None or found.attempt.number < least:",
        replacement="if found.attempt is None:",
        tests=(f"{_OPERATORS}_sensors_say_what_a_pipeline_lacks",),
    ),
    Bug(
        name="the sensor for a newer checkpoint is content with the one that it has",
        area=Area.SENSORS,
        file="airflow_provider_ckpt/sensors/pipeline.py",
        text="found.newest.ref.id <= int(after)",
        replacement="found.newest.ref.id < int(after)",
        tests=(f"{_OPERATORS}_sensors_say_what_a_pipeline_lacks",),
    ),
    Bug(
        name="a sensor that is woken begins its whole time anew",
        area=Area.SENSORS,
        file="airflow_provider_ckpt/sensors/base.py",
        text="self._wait(context, until=datetime.fromisoformat(until))",
        replacement="self._wait(context, until=datetime.now(UTC) + timedelta(seconds=self.timeout))",
        tests=(f"{_OPERATORS}_a_sensor_that_is_woken_again_and_again_gives_up_when_its_time_is_over",),
    ),
)

TRIGGERS = (
    Bug(
        name="the trigger of a checkpoint fires before its cuts are taken",
        area=Area.TRIGGERS,
        file="airflow_provider_ckpt/metastore/watcher.py",
        text="acknowledged = self.phase is Phase.IN_PROGRESS and not self.has_pending",
        replacement="acknowledged = not self.has_pending",
        tests=(f"{_TRIGGERS}_a_checkpoint_whose_cuts_are_not_taken_yet_wakes_nobody",),
    ),
    Bug(
        name="who waits for the end of a checkpoint is woken while sinks commit",
        area=Area.TRIGGERS,
        file="airflow_provider_ckpt/triggers/checkpoint.py",
        text="if seen.sight.phase in ENDED if self.until_ended else seen.sight.needs_attention:",
        replacement="if seen.sight.needs_attention:",
        tests=(f"{_TRIGGERS}_who_waits_for_the_end_is_not_woken_while_sinks_commit",),
    ),
    Bug(
        name="the trigger of a checkpoint fires while acknowledgements are missing",
        area=Area.TRIGGERS,
        file="airflow_provider_ckpt/metastore/watcher.py",
        text="acknowledged = self.phase is Phase.IN_PROGRESS and not self.has_pending",
        replacement="acknowledged = self.phase is Phase.IN_PROGRESS",
        tests=(f"{_TRIGGERS}_a_checkpoint_that_all_have_acknowledged_wakes_its_task",),
    ),
    Bug(
        name="an attempt that has fallen silent is waited for",
        area=Area.TRIGGERS,
        file="airflow_provider_ckpt/metastore/watcher.py",
        text="return not self.is_current or self.is_silent or self.is_unclaimed or self.status not in ALIVE",
        replacement="return not self.is_current or self.status not in ALIVE",
        tests=(f"{_TRIGGERS}_an_attempt_that_ends_or_falls_silent_wakes_its_task",),
    ),
    Bug(
        name="a watcher that begins does not hear what is wrong already",
        area=Area.TRIGGERS,
        file="airflow_provider_ckpt/triggers/events.py",
        text="if last is None else last.seq - 1",
        replacement="if last is None else last.seq",
        tests=(f"{_TRIGGERS}_what_is_wrong_already_is_heard_by_a_watcher_that_begins",),
    ),
    Bug(
        name="an attempt that falls silent is no event",
        area=Area.TRIGGERS,
        file="airflow_provider_ckpt/triggers/events.py",
        text='frozenset({"attempt.failed", "attempt.silent"})',
        replacement='frozenset({"attempt.failed"})',
        tests=(f"{_TRIGGERS}_silence_is_noticed_by_whoever_watches_and_told_once",),
    ),
    Bug(
        name="a task that Airflow has replaced stops the attempt of its successor",
        area=Area.TRIGGERS,
        file="airflow_provider_ckpt/triggers/attempt.py",
        text="            attempt=running.attempt,\n            since=running.since,\n        )\n    finally:",
        replacement="        )\n    finally:",
        tests=("tests/airflow/test_running.py::test_an_execution_that_airflow_has_replaced_does_not_stop_the_new_one",),
    ),
)

PAGE = (
    Bug(
        name="the page answers anonymous requests",
        area=Area.PAGE,
        file="airflow_provider_ckpt/ui/app.py",
        text="dependencies=[Depends(authenticated)],",
        replacement="dependencies=[],",
        tests=(f"{_PAGE}_an_anonymous_request_gets_401_from_every_route",),
    ),
    Bug(
        name="a viewer may write",
        area=Area.PAGE,
        file=_SECURITY,
        text='method="POST", access_entity=DagAccessEntity.RUN',
        replacement='method="GET", access_entity=DagAccessEntity.RUN',
        tests=(f"{_PAGE}_a_viewer_reads_everything_and_changes_nothing",),
    ),
    Bug(
        name="anybody may read a pipeline whose Dags they may not read",
        area=Area.PAGE,
        file=_SECURITY,
        text='is_allowed = check_name("pipeline", pipeline) in readable(user, [pipeline])',
        replacement='is_allowed = check_name("pipeline", pipeline) == pipeline',
        tests=(f"{_PAGE}_whoever_may_not_read_a_pipeline_learns_nothing_of_it",),
    ),
    Bug(
        name="the list of pipelines shows those whose Dags one may not read",
        area=Area.PAGE,
        file="airflow_provider_ckpt/ui/pipelines.py",
        text="names = sorted(readable(user, (each.name for each in context.store.pipelines.all())))",
        replacement="names = sorted(each.name for each in context.store.pipelines.all())",
        tests=(f"{_PAGE}_whoever_may_not_read_a_pipeline_learns_nothing_of_it",),
    ),
    Bug(
        name="an action does not need the header that no form can send",
        area=Area.PAGE,
        file=_SECURITY,
        text="    if HEADER not in request.headers:\n",
        replacement='    if HEADER not in request.headers and "origin" not in request.headers:\n',
        tests=(f"{_PAGE}_what_another_site_may_have_sent_is_refused",),
    ),
    Bug(
        name="a site whose name begins like Airflow's may act",
        area=Area.PAGE,
        file=_SECURITY,
        text="urlsplit(origin).netloc not in _own_hosts(request)",
        replacement="not urlsplit(origin).netloc.startswith(tuple(_own_hosts(request)))",
        tests=(f"{_PAGE}_what_another_site_may_have_sent_is_refused",),
    ),
    Bug(
        name="a person may lift the pin of a restore at work",
        area=Area.PAGE,
        file="airflow_provider_ckpt/ui/actions.py",
        text="    if name.startswith(_RESERVED):\n",
        replacement="    if name == _RESERVED:\n",
        tests=("tests/ui/test_api.py::test_what_can_not_be_done_is_said_in_words",),
    ),
    Bug(
        name="a password in a stored text is shown",
        area=Area.PAGE,
        file="airflow_provider_ckpt/ui/app.py",
        text="return super().render(redact_all(content))",
        replacement="return super().render(content)",
        tests=(f"{_PAGE}_a_password_in_a_stored_text_leaves_nowhere",),
    ),
)
