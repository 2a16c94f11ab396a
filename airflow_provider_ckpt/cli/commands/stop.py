"""`ckpt stop`: the pipeline ends after a last checkpoint, and stays ended until somebody starts it again."""

import argparse
import time
from uuid import uuid4

from airflow_provider_ckpt.cli import documents
from airflow_provider_ckpt.cli.exit_codes import ExitCode
from airflow_provider_ckpt.cli.output import Result, line
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.metastore import Metastore
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Attempt, Checkpoint, DesiredState, Failure, Ref, TriggerRequest

_TICK = 0.2  # seconds


def stop(args: argparse.Namespace, session: Session) -> Result:
    name = check_name("pipeline", args.pipeline)
    store = session.store
    asked = None
    if args.savepoint is None:
        store.pipelines.desire(name, DesiredState.STOPPED, actor=session.actor, reason=args.reason)
    else:
        asked = _trigger_savepoint(store, name, check_name("savepoint", args.savepoint), session.actor, args.reason)
    attempt = _current(store, name)
    if not args.no_wait and attempt is not None:
        attempt = _wait(store, attempt, args.wait)
    savepoint = None if asked is None else store.checkpoints.get(asked)
    if savepoint is not None and savepoint.failure is not None:
        return _without_savepoint(name, attempt, savepoint, savepoint.failure)
    return _result(name, attempt, savepoint or _newest(store, name))


def _trigger_savepoint(store: Metastore, name: str, savepoint: str, actor: str, reason: str) -> Ref:
    """One transaction asks for the savepoint and for the end: the driver stops its queries first, then takes it."""
    request = TriggerRequest(
        pipeline=name,
        key=f"cli:{uuid4().hex}",
        requested_by=actor,
        reason=reason or "stopped with a savepoint",
        savepoint=savepoint,
        is_last=True,
        then_stop=True,
    )
    triggered = store.barriers.trigger(request)
    if triggered.checkpoint is None:
        raise Refused(
            f"Pipeline {name} was not stopped, because no savepoint can be taken now ({triggered.skipped}): "
            f"{triggered.detail}. Try again, or stop it without one."
        )
    return triggered.checkpoint.ref


def _wait(store: Metastore, attempt: Attempt, seconds: float) -> Attempt:
    give_up = time.monotonic() + seconds
    while _is_running(attempt) and time.monotonic() < give_up:
        time.sleep(_TICK)
        attempt = store.attempts.get(attempt.pipeline, attempt.number)
    return attempt


def _current(store: Metastore, name: str) -> Attempt | None:
    number = store.pipelines.get(name).current_attempt
    return None if number is None else store.attempts.get(name, number)


def _newest(store: Metastore, name: str) -> Checkpoint | None:
    page = store.checkpoints.page(name, phases=frozenset({Phase.COMPLETED}), limit=1)
    return next(iter(page.checkpoints), None)


def _is_running(attempt: Attempt | None) -> bool:
    return attempt is not None and attempt.is_alive and attempt.claimed_at is not None


def _without_savepoint(name: str, attempt: Attempt | None, savepoint: Checkpoint, failure: Failure) -> Result:
    """The pipeline ends all the same; whoever asked for a savepoint must not believe that there is one."""
    state = "still runs and is asked to stop" if _is_running(attempt) else "is stopped"
    why = failure.message.rstrip(".")
    text = (
        f"The savepoint {savepoint.name} ({savepoint.ref}) failed ({failure.reason}): {why}. Pipeline {name} {state} "
        f"without it. `ckpt list {name}` shows what there is."
    )
    return Result(
        document=_document(name, attempt, savepoint), view=[line(text, "red")], code=ExitCode.CHECKPOINT_FAILED
    )


def _document(name: str, attempt: Attempt | None, last: Checkpoint | None) -> JsonObject:
    return {
        "pipeline": name,
        "is_running": _is_running(attempt),
        "attempt": None if attempt is None else documents.attempt(attempt),
        "last": None if last is None else documents.checkpoint(last),
    }


def _result(name: str, attempt: Attempt | None, newest: Checkpoint | None) -> Result:
    is_running = _is_running(attempt)
    state = "is asked to stop, and still runs" if is_running else "is stopped"
    last = "it has no completed checkpoint" if newest is None else f"its last checkpoint is {newest.ref}"
    named = f" ({newest.name})" if newest is not None and newest.name is not None else ""
    if newest is not None and newest.is_in_flight:
        named += f", which is {newest.phase}"
    return Result(
        document=_document(name, attempt, newest),
        view=[line(f"Pipeline {name} {state}; {last}{named}. `ckpt pipelines {name} --start` lets it run again.")],
        code=ExitCode.TRY_AGAIN if is_running else ExitCode.DONE,
    )
