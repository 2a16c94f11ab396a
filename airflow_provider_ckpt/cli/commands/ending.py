"""`ckpt abort` and `ckpt resolve`: a person ends what does not end by itself."""

import argparse

from airflow_provider_ckpt.cli import documents
from airflow_provider_ckpt.cli.output import Result, line
from airflow_provider_ckpt.cli.refs import find_ref
from airflow_provider_ckpt.cli.session import Session
from airflow_provider_ckpt.coordinator.commit import resolve
from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import SINK_DONE, Checkpoint, SinkStatus


def abort(args: argparse.Namespace, session: Session) -> Result:
    ref = find_ref(session.store, args.ref)
    message = args.reason or f"called off by {session.actor}"
    if not session.store.checkpoints.fail(ref, FailureReason.ABORTED, message, actor=session.actor):
        raise Refused(_too_late(session.store.checkpoints.get(ref)))
    checkpoint = session.store.checkpoints.get(ref)
    view = [line(f"{ref} was aborted. The pipeline goes on; `ckpt trigger {ref.pipeline}` takes the next one.")]
    return Result(document=documents.checkpoint(checkpoint), view=view)


def resolve_sink(args: argparse.Namespace, session: Session) -> Result:
    ref = find_ref(session.store, args.ref)
    checkpoint = resolve(session.context, ref, args.sink, SinkStatus(args.outcome), reason=args.reason)
    left = [sink.sink for sink in session.store.sinks.of(ref) if sink.status not in SINK_DONE]
    waits = f" and waits for {', '.join(left)}" if left else ""
    return Result(
        document={**documents.checkpoint(checkpoint), "waiting_sinks": left},
        view=[line(f"Sink {args.sink} of {ref} is {args.outcome}. {ref} is {checkpoint.phase}{waits}.")],
    )


def _too_late(checkpoint: Checkpoint) -> str:
    start = f"Checkpoint {checkpoint.ref} can not be aborted: it is {checkpoint.phase}"
    if checkpoint.phase is Phase.COMMITTING:
        return (
            f"{start}, which is decided, and its sinks may have published. Wait for them, or say what became of "
            f"one with `ckpt resolve {checkpoint.ref} --sink SINK --as committed|abandoned --reason …`."
        )
    return f"{start}, which is an end already."
