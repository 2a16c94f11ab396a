"""`ckpt trigger` and `ckpt savepoint`: start a checkpoint and follow it until it has ended."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from airflow_provider_ckpt.cli import documents, humanise
from airflow_provider_ckpt.cli.exit_codes import ExitCode
from airflow_provider_ckpt.cli.output import Result, line
from airflow_provider_ckpt.cli.progress import following
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.cli.views import blame_section
from airflow_provider_ckpt.coordinator.follow import follow
from airflow_provider_ckpt.coordinator.targets import is_id
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.records import Checkpoint, Ref, Triggered, TriggerRequest


def trigger(args: argparse.Namespace, session: Session) -> Result:
    return _trigger(args, session, savepoint=None)


def savepoint(args: argparse.Namespace, session: Session) -> Result:
    name = check_name("savepoint", args.name)
    if is_id(name):
        raise Misused(f"A savepoint can not be called {name}: digits alone are the id of a checkpoint.")
    return _trigger(args, session, savepoint=name)


def _trigger(args: argparse.Namespace, session: Session, savepoint: str | None) -> Result:
    context = session.reader if args.no_wait else session.context
    request = TriggerRequest(
        pipeline=check_name("pipeline", args.pipeline),
        key=args.key or f"cli:{uuid4().hex}",
        requested_by=session.actor,
        reason=args.reason,
        savepoint=savepoint,
        when_due=args.when_due,
    )
    triggered = context.store.barriers.trigger(request)
    if triggered.checkpoint is None:
        return _skipped(triggered)
    if args.no_wait:
        return _started(triggered, triggered.checkpoint)
    return _ended(triggered, _follow(session, triggered.checkpoint, args.wait))


def _follow(session: Session, checkpoint: Checkpoint, wait: float | None) -> Checkpoint:
    """Without --wait the deadline ends it; sinks then get as long again as the acknowledgements had."""
    limit = (checkpoint.deadline - checkpoint.triggered_at).total_seconds() * 2 if wait is None else wait
    with _interruptible(checkpoint.ref), following() as draw:
        return follow(session.context, checkpoint.ref, timeout=limit, on_progress=draw)


@contextmanager
def _interruptible(ref: Ref) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print(
            f"{ref} goes on without this command; its driver completes it. `ckpt show {ref}` shows it, "
            f"`ckpt abort {ref}` ends it.",
            file=sys.stderr,
        )
        raise


def _skipped(triggered: Triggered) -> Result:
    view = [line(f"Skipped ({triggered.skipped}): {triggered.detail}.")]
    return Result(document=_document(triggered, None), view=view, code=ExitCode.SKIPPED)


def _started(triggered: Triggered, checkpoint: Checkpoint) -> Result:
    what = "was triggered" if triggered.is_new else f"is {checkpoint.phase}: {triggered.detail}"
    view = [line(f"{checkpoint.ref} {what}. `ckpt show {checkpoint.ref}` shows how far it is.")]
    return Result(document=_document(triggered, checkpoint), view=view)


def _ended(triggered: Triggered, checkpoint: Checkpoint) -> Result:
    document = _document(triggered, checkpoint)
    if checkpoint.failure is not None:
        failure = checkpoint.failure
        why = failure.message.rstrip(".")
        text = f"{checkpoint.ref} failed ({failure.reason}): {why}. The next one covers what it would have."
        view = [line(text, "red"), *blame_section(failure.blame)]
        return Result(document=document, view=view, code=ExitCode.CHECKPOINT_FAILED)
    if checkpoint.is_in_flight:
        text = f"{checkpoint.ref} is still {checkpoint.phase}. `ckpt show {checkpoint.ref}` shows what it waits for."
        return Result(document=document, view=[line(text)], code=ExitCode.TRY_AGAIN)
    return Result(document=document, view=[line(_completed(checkpoint))])


def _completed(checkpoint: Checkpoint) -> str:
    took = humanise.lasted(checkpoint.triggered_at, checkpoint.ended_at)
    members = humanise.count(checkpoint.participants or 0, "participant")
    moved = "" if checkpoint.decision is None else f", {humanise.moved(checkpoint.decision)}"
    return f"{checkpoint.ref} is {checkpoint.phase} after {took}: {members}{moved}."


def _document(triggered: Triggered, checkpoint: Checkpoint | None) -> JsonObject:
    return {
        "checkpoint": None if checkpoint is None else documents.checkpoint(checkpoint),
        "is_new": triggered.is_new,
        "skipped": triggered.skipped,
        "detail": triggered.detail,
    }
