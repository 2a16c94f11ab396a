"""What those who may can do. Every action is an event in the store with the person's name."""

from typing import Annotated
from uuid import uuid4

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, living_attempt, plan_restore
from airflow_provider_ckpt.protocol.codec import Json
from airflow_provider_ckpt.protocol.errors import Misused, NotFound, Refused, TryAgain, Unreachable
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import LARGEST, Ref, TriggerRequest
from airflow_provider_ckpt.protocol.recovery import Policy, Target
from airflow_provider_ckpt.protocol.timeline import current_timeline
from airflow_provider_ckpt.spark.sinks.opening import reach_sinks
from airflow_provider_ckpt.ui.answers import Done, RestorePrice, RestoreStarted, Triggered
from airflow_provider_ckpt.ui.checkpoint import Id
from airflow_provider_ckpt.ui.dags import start_restore
from airflow_provider_ckpt.ui.opened import Opened
from airflow_provider_ckpt.ui.security import Actor, Readable, Restorer

router = APIRouter(tags=["actions"])
_NEWEST = 100  # completed checkpoints that are looked at for what a restore would leave behind
_RESERVED = "restore:"  # a restore lifts such pins by itself
_Reason = Annotated[str, Field(max_length=500)]
_Sinks = Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=100)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TriggerBody(Body):
    savepoint: Annotated[str | None, Field(max_length=100)] = None  # the name of the savepoint that is wanted
    reason: _Reason = ""


class AbortBody(Body):
    reason: _Reason = ""


class PinBody(Body):
    reason: Annotated[str, Field(min_length=1, max_length=500)]


class UnpinBody(Body):
    owner: Annotated[str, Field(min_length=1, max_length=200)]


class RestoreBody(Body):
    to: Annotated[int, Field(ge=1, le=LARGEST)]
    accept_duplicates: _Sinks = []
    reason: _Reason = ""


@router.post("/pipelines/{pipeline}/checkpoints")
def trigger(pipeline: Readable, body: TriggerBody, actor: Actor, context: Opened) -> Triggered:
    """Take a checkpoint now, or a savepoint by its name; skipped, with the reason, where that can not be."""
    request = TriggerRequest(
        pipeline=pipeline,
        key=f"page:{uuid4().hex}",
        requested_by=actor,
        reason=body.reason,
        savepoint=body.savepoint,
    )
    done = context.store.barriers.trigger(request)
    checkpoint = None if done.checkpoint is None else done.checkpoint.ref.id
    return Triggered(checkpoint=checkpoint, skipped=done.skipped, detail=done.detail)


@router.post("/pipelines/{pipeline}/checkpoints/{id}/abort")
def abort(pipeline: Readable, id: Id, body: AbortBody, actor: Actor, context: Opened) -> Done:  # noqa: A002
    """Call a checkpoint off that is not decided yet; the pipeline goes on."""
    ref, store = Ref(pipeline, id), context.store
    store.checkpoints.get(ref)
    if not store.checkpoints.fail(ref, FailureReason.ABORTED, body.reason or f"called off by {actor}", actor=actor):
        phase = store.checkpoints.get(ref).phase
        why = "it is decided, and its sinks may have published" if phase is Phase.COMMITTING else "it has ended"
        raise Refused(f"Checkpoint {ref} can not be aborted: {why}.")
    return Done(checkpoint=id)


@router.post("/pipelines/{pipeline}/checkpoints/{id}/pin")
def pin(pipeline: Readable, id: Id, body: PinBody, actor: Actor, context: Opened) -> Done:  # noqa: A002
    """Hold a completed checkpoint: cleanup never passes it."""
    context.store.pins.add(Ref(pipeline, id), owner=_owner(actor), reason=body.reason)
    return Done(checkpoint=id)


@router.post("/pipelines/{pipeline}/checkpoints/{id}/unpin")
def unpin(pipeline: Readable, id: Id, body: UnpinBody, actor: Actor, context: Opened) -> Done:  # noqa: A002
    """Lift a pin, whoever's it is: the event names both."""
    ref = Ref(pipeline, id)
    context.store.pipelines.get(pipeline)
    if not context.store.pins.remove(ref, owner=_owner(body.owner), actor=actor):
        raise NotFound(f"{ref} has no pin of {body.owner!r:.80}.")
    return Done(checkpoint=id)


@router.get("/pipelines/{pipeline}/restore")
def price_restore(
    pipeline: Readable,
    context: Opened,
    to: Annotated[int, Query(ge=1, le=LARGEST)],
    accept_duplicates: Annotated[list[str] | None, Query(max_length=100)] = None,
) -> RestorePrice:
    """What a restore to there would cost. It asks the targets of the sinks, as the restore itself does."""
    context.store.pipelines.get(pipeline)
    return _price(context, pipeline, to, accept_duplicates or [])


@router.post("/pipelines/{pipeline}/restore")
def restore(pipeline: Readable, body: RestoreBody, actor: Restorer, context: Opened) -> RestoreStarted:
    """Start the restore Dag; whatever runs is fenced by it."""
    price = _price(context, pipeline, body.to, body.accept_duplicates)
    if not price.is_possible:
        raise Refused(price.why_not or "It can not be restored.")
    conf: dict[str, Json] = {"to": str(body.to)}
    if body.accept_duplicates:
        conf["accept_duplicates"] = ",".join(body.accept_duplicates)
    dag_id, run_id = start_restore(pipeline, conf, user=actor)
    context.store.events.record(
        pipeline,
        "restore.requested",
        actor=actor,
        reason=body.reason,
        checkpoint=body.to,
        detail={**conf, "dag_id": dag_id, "run_id": run_id},
    )
    return RestoreStarted(dag_id=dag_id, run_id=run_id)


def _price(context: Context, pipeline: str, to: int, accept_duplicates: list[str]) -> RestorePrice:
    options = RestoreOptions(
        target=Target(id=to),
        policy=Policy(accept_duplicates=frozenset(accept_duplicates)),
        committers=reach_sinks(context, pipeline),
        take_over=True,
    )
    living = living_attempt(context, pipeline)
    nothing = RestorePrice(
        is_possible=False,
        why_not=None,
        rung=None,
        checkpoint=None,
        replay_seconds=None,
        passed_over={},
        rolled_back=[],
        duplicated=[],
        sinks=[each.sink for each in context.store.sinks.of(Ref(pipeline, to))],
        living_attempt=None if living is None else living.number,
        left_behind=[id_ for id_ in _completed(context, pipeline) if id_ > to],
    )
    try:
        choice = plan_restore(context, pipeline, options)
    except Unreachable:
        raise
    except (Refused, NotFound, TryAgain) as error:
        return nothing.model_copy(update={"why_not": str(error)})
    found = {
        "is_possible": True,
        "rung": choice.rung,
        "checkpoint": None if choice.checkpoint is None else choice.checkpoint.ref.id,
        "replay_seconds": choice.price.replay.total_seconds(),
        "passed_over": dict(choice.price.passed_over),
        "rolled_back": list(choice.price.rolled_back),
        "duplicated": list(choice.price.duplicated),
    }
    return nothing.model_copy(update=found)


def _completed(context: Context, pipeline: str) -> list[int]:
    timeline = current_timeline(context.store.attempts.of(pipeline))
    page = context.store.checkpoints.page(pipeline, limit=_NEWEST, phases=frozenset({Phase.COMPLETED}))
    return [each.ref.id for each in page.checkpoints if timeline.holds(each.attempt, each.ref.id)]


def _owner(name: str) -> str:
    if name.startswith(_RESERVED):
        raise Misused(f"Pins of owners that begin with {_RESERVED!r} belong to restores at work.")
    return name
