"""Finishing COMMITTING: every sink publishes what it staged, once; a person resolves what can not be finished."""

import logging
from collections.abc import Mapping
from typing import Protocol

from airflow_provider_ckpt.coordinator.complete import mark_decided
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import Fenced, OutcomeUnknown
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.pledge import has_nothing
from airflow_provider_ckpt.protocol.records import SINK_DONE, Checkpoint, Ref, SinkCommit, SinkStatus
from airflow_provider_ckpt.protocol.recovery import SinkMarker

_log = logging.getLogger(__name__)


class Committer(Protocol):
    """Publishes one sink's staged data in its target."""

    def commit(self, ref: Ref, staged: JsonObject, attempt: int) -> JsonObject:
        """Publish, guarded by a durable marker in the target: a second call for the same checkpoint changes nothing.

        Says what is published: rows, bytes, files, and the target's version.

        :raises OutcomeUnknown: when it may or may not have been published.
        :raises Fenced: when the target knows a newer attempt.
        """

    def marker(self, pipeline: str) -> SinkMarker:
        """What the target says was published last."""


def commit(context: Context, ref: Ref, attempt: int, committers: Mapping[str, Committer]) -> Checkpoint:
    """Commit every sink that is not done; the checkpoint completes with the last one.

    A sink that fails stays pending and stops nothing else: call again. Sinks without a committer here are left alone.

    :raises Fenced: when `attempt` is not the current one.
    """
    checkpoint = context.store.checkpoints.get(ref)
    if checkpoint.phase is Phase.COMMITTING and checkpoint.decision is not None:
        check_current(context, ref, attempt)
        mark_decided(context, checkpoint.decision)
        for sink in context.store.sinks.of(ref):
            if sink.status in SINK_DONE:
                continue
            if has_nothing(sink.staged):
                context.store.sinks.nothing_to_commit(ref, sink.sink, attempt)
            elif sink.sink in committers:
                _commit_one(context, ref, attempt, sink, committers[sink.sink])
        context.store.checkpoints.complete(ref, actor=context.actor)
    return context.store.checkpoints.get(ref)


def resolve(context: Context, ref: Ref, sink: str, status: SinkStatus, *, reason: str) -> Checkpoint:
    """A person decides what became of a commit that can not be finished; audited."""
    checkpoint = context.store.checkpoints.get(ref)
    if checkpoint.phase is Phase.COMMITTING and checkpoint.decision is not None:
        mark_decided(context, checkpoint.decision)  # whoever decided may have died before: no marker, no rebuild
    context.store.sinks.resolve(ref, sink, status, actor=context.actor, reason=reason)
    context.store.checkpoints.complete(ref, actor=context.actor)
    return context.store.checkpoints.get(ref)


def check_current(context: Context, ref: Ref, attempt: int) -> None:
    current = context.store.pipelines.get(ref.pipeline).current_attempt
    if current != attempt:
        raise Fenced(f"Attempt {attempt} may not commit {ref}: attempt {current} is current.")


def _commit_one(context: Context, ref: Ref, attempt: int, sink: SinkCommit, committer: Committer) -> None:
    check_current(context, ref, attempt)  # right before: the sink before this one may have taken long
    try:
        published = committer.commit(ref, sink.staged, attempt)
    except Exception as error:  # noqa: BLE001 - a sink may raise anything; the checkpoint stays COMMITTING
        is_unknown = isinstance(error, OutcomeUnknown)
        _log.warning("%s: sink %s did not commit: %s", ref, sink.sink, error)
        context.store.sinks.not_committed(ref, sink.sink, attempt, str(error), is_unknown=is_unknown)
    else:
        context.store.sinks.committed(ref, sink.sink, attempt, published)
