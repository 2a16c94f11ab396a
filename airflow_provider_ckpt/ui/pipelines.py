"""All pipelines, one of them at a glance, and where the tab of a Dag opens."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Query

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.health import Health, health
from airflow_provider_ckpt.coordinator.marks import Marker
from airflow_provider_ckpt.coordinator.recoveries import forecast
from airflow_provider_ckpt.hooks.dags import LastWord, dag_id_of, pipeline_of
from airflow_provider_ckpt.protocol.errors import NotFound
from airflow_provider_ckpt.protocol.phases import IN_FLIGHT, Phase
from airflow_provider_ckpt.protocol.records import DesiredState, Kind
from airflow_provider_ckpt.ui.answers import (
    CheckpointLine,
    Counts,
    DagFacts,
    ForecastAnswer,
    LeaseLine,
    Overview,
    PipelineLine,
    PipelinesPage,
    Point,
    QueryNode,
    Rights,
    SettingsAnswer,
    Where,
    seconds,
)
from airflow_provider_ckpt.ui.attempts import lines_of
from airflow_provider_ckpt.ui.dags import facts_of
from airflow_provider_ckpt.ui.history import line_of
from airflow_provider_ckpt.ui.opened import Opened, access, opened
from airflow_provider_ckpt.ui.security import Readable, may_act, may_restore, readable

router = APIRouter(tags=["pipelines"])
_SPARK = 30  # checkpoints in the small chart of a line
_TRIGGER_TASK = "trigger"  # of the checkpoint Dag
_ATTEMPTS = 20  # among which the latest restore is looked for
_COUNTED = 1000  # checkpoints that counts are taken over


@router.get("/pipelines")
def list_pipelines(
    user: GetUserDep,
    after: Annotated[str, Query(max_length=100)] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> PipelinesPage:
    """Those that the user may see, in order of name."""
    if not access().has_store:
        return PipelinesPage(pipelines=[], next_after=None, now=None)
    context = opened()
    names = sorted(readable(user, (each.name for each in context.store.pipelines.all())))
    left = [name for name in names if name > after]
    shown = left[:limit]
    dags = facts_of(shown)
    return PipelinesPage(
        pipelines=[_line(context, health(context, name), dags) for name in shown],
        next_after=shown[-1] if len(left) > limit else None,
        now=context.store.checkpoints.now(),
    )


@router.get("/where")
def find_place(
    user: GetUserDep,
    dag_id: Annotated[str, Query(max_length=250)],
    run_id: Annotated[str | None, Query(max_length=250)] = None,
) -> Where:
    """What the tab of a Dag, or of a run of it, is about; nothing, where that is no pipeline that the user may see."""
    name = pipeline_of(dag_id)
    if name is None or not access().has_store or name not in readable(user, [name]):
        return Where(pipeline=None)
    store = opened().store
    try:
        store.pipelines.get(name)
    except NotFound:
        return Where(pipeline=None)
    if run_id is None:
        return Where(pipeline=name)
    triggered = store.checkpoints.find_triggered(name, f"airflow {dag_id}/{run_id}/{_TRIGGER_TASK}")
    attempt = run_id.removeprefix("attempt-") if dag_id == dag_id_of(name, LastWord.RUN) else ""
    return Where(
        pipeline=name,
        checkpoint=None if triggered is None else triggered.ref.id,
        attempt=int(attempt) if attempt.isascii() and attempt.isdecimal() else None,
    )


@router.get("/pipelines/{pipeline}")
def get_overview(user: GetUserDep, pipeline: Readable, context: Opened) -> Overview:
    """One pipeline at a glance, and what a failure now would cost."""
    found, store = health(context, pipeline), context.store
    marker, dags = Marker(store, pipeline), facts_of([pipeline])
    attempts = lines_of(context, pipeline, store.attempts.newest(pipeline, limit=_ATTEMPTS))
    cost = forecast(context, pipeline, found.newest)
    return Overview(
        pipeline=_line(context, found, dags),
        counts=_counts(store.checkpoints.counts(pipeline, limit=_COUNTED)),
        latest_failed=_latest(context, pipeline, marker, phases=frozenset({Phase.FAILED})),
        latest_savepoint=_latest(context, pipeline, marker, kind=Kind.SAVEPOINT),
        latest_restore=next((each for each in attempts if each.parent is not None), None),
        current_attempt=attempts[0] if attempts else None,
        forecast=ForecastAnswer(
            replay_seconds=seconds(cost.replay), recovery_seconds=seconds(cost.recovery), recoveries=cost.recoveries
        ),
        leases=[LeaseLine.like(each) for each in store.leases.held(pipeline)],
        deferred_since=found.pipeline.deferred_since,
        dags=list(dags.values()),
        rights=rights_of(user, pipeline),
        now=store.checkpoints.now(),
    )


@router.get("/pipelines/{pipeline}/settings")
def get_settings(pipeline: Readable, context: Opened) -> SettingsAnswer:
    found = context.store.pipelines.get(pipeline)
    number = found.current_attempt
    queries = () if number is None else context.store.attempts.graph(pipeline, number).queries
    return SettingsAnswer(
        settings=dict(found.settings.to_json()),
        desired_state=found.desired_state,
        created_at=found.created_at,
        graph=[QueryNode.of(each) for each in queries],
        dags=list(facts_of([pipeline]).values()),
        storage=context.storage.url,
        metastore=context.store.engine.name,
    )


def rights_of(user: BaseUser, pipeline: str) -> Rights:
    return Rights(may_act=may_act(user, pipeline), may_restore=may_restore(user, pipeline))


def _line(context: Context, found: Health, dags: Mapping[str, DagFacts]) -> PipelineLine:
    name = found.pipeline.name
    dag = dags.get(dag_id_of(name, LastWord.CHECKPOINT))
    return PipelineLine(
        name=name,
        desired_state=found.pipeline.desired_state,
        is_well=found.is_well,
        problems=[each.text for each in found.problems],
        attempt=None if found.attempt is None else found.attempt.number,
        attempt_status=None if found.attempt is None else found.attempt.status,
        newest=None if found.newest is None else CheckpointLine.of(found.newest, marks=[]),
        age_seconds=seconds(found.age),
        recovery_point_seconds=seconds(found.pipeline.settings.objectives.recovery_point),
        is_stale=_is_stale(found),
        in_flight=None if found.in_flight is None else line_of(context.store, found.in_flight, marks=[]),
        failures_in_a_row=found.failures,
        recent=[Point.of(each, None) for each in context.store.checkpoints.measures(name, limit=_SPARK)],
        next_run_at=None if dag is None else dag.next_run_at,
        is_paused=None if dag is None else dag.is_paused,
    )


def _is_stale(found: Health) -> bool:
    objective = found.pipeline.settings.objectives.recovery_point
    if objective is None or found.pipeline.desired_state is DesiredState.STOPPED:
        return False
    return found.age is None or found.age > objective


def _counts(found: Counter[Phase]) -> Counts:
    total, failed = found.total(), found[Phase.FAILED]
    flying = sum(found[phase] for phase in IN_FLIGHT)
    return Counts(total=total, completed=total - failed - flying, failed=failed, in_flight=flying)


def _latest(
    context: Context, pipeline: str, marker: Marker, *, phases: frozenset[Phase] = frozenset(), kind: Kind | None = None
) -> CheckpointLine | None:
    found = context.store.checkpoints.page(pipeline, limit=1, phases=phases, kind=kind).checkpoints
    return CheckpointLine.of(found[0], marks=marker.marks(found[0])) if found else None
