"""Completing a checkpoint: manifest, decision, marker; then the sinks' commits.

Files durable → acks → manifest written (create-only) → the compare-and-set to COMMITTING, which names the manifest and
its digest: *this* is the decision → `decided` marker beside the manifest → sink commits → COMPLETED. A crash between
any two steps is resumed by calling `complete` again, from anywhere.
"""

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.identity import own_storage
from airflow_provider_ckpt.coordinator.manifests import build_manifest, decision_on
from airflow_provider_ckpt.protocol.blame import describe
from airflow_provider_ckpt.protocol.errors import AlreadyExists, LostRace, Refused, TryAgain
from airflow_provider_ckpt.protocol.manifest import Manifest, decided_marker
from airflow_provider_ckpt.protocol.paths import decided_path, home_of_manifest
from airflow_provider_ckpt.protocol.phases import IN_FLIGHT, Phase
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import Checkpoint, Decision, FileRef, Kind, Ref


def complete(context: Context, ref: Ref) -> Checkpoint:
    """Take a checkpoint as far as it goes without a sink: to COMPLETED, or to COMMITTING when sinks must publish.

    Idempotent: calling it for a checkpoint that is decided or completed resumes or confirms it.

    :raises TryAgain: while participants have not acknowledged.
    :raises Refused: when the checkpoint has failed or is gone.
    """
    checkpoint = context.store.checkpoints.get(ref)
    decision = _decide(context, ref) if checkpoint.phase is Phase.IN_PROGRESS else checkpoint.decision
    if decision is not None and checkpoint.phase in IN_FLIGHT:
        mark_decided(context, decision)
        context.store.checkpoints.complete(ref, actor=context.actor)
        checkpoint = context.store.checkpoints.get(ref)
    return _check_alive(checkpoint)


def mark_decided(context: Context, decision: Decision) -> None:
    """Write the marker that makes the manifest count without the store; no sink commits before it is there."""
    marker = decided_path(home_of_manifest(decision.manifest_path))
    context.storage.create(marker, decided_marker(decision.manifest_sha256))


def _decide(context: Context, ref: Ref) -> Decision | None:
    """Write the manifest and decide upon it; whoever lost the race looks at what the winner decided."""
    dossier = context.store.views.dossier(ref)
    manifest = build_manifest(dossier)
    data = manifest.to_bytes()
    decision = decision_on(manifest, data, dossier)
    own_storage(context, ref.pipeline)
    if manifest.kind is Kind.SAVEPOINT:
        _copy_into_savepoint(context, manifest)
    _write_manifest(context, ref, decision, data)
    if context.store.checkpoints.decide(ref, decision, actor=context.actor):
        return decision
    return _check_alive(context.store.checkpoints.get(ref)).decision


def _write_manifest(context: Context, ref: Ref, decision: Decision, data: bytes) -> None:
    try:
        context.storage.create(decision.manifest_path, data)
    except AlreadyExists as error:
        why = f"{decision.manifest_path} holds the manifest of another checkpoint: was the store reset?"
        context.store.checkpoints.fail(ref, FailureReason.STORAGE, why, actor=context.actor)
        raise Refused(
            f"Checkpoint {ref} has failed: {why} Run `ckpt rebuild {ref.pipeline}` so that ids continue after those "
            "in the storage."
        ) from error


def _copy_into_savepoint(context: Context, manifest: Manifest) -> None:
    """Give a savepoint copies of its own, so that it can be moved and outlives every cleanup."""

    def copy(file: FileRef) -> None:
        context.storage.copy(f"{manifest.ref.pipeline}/{file.path}", manifest.located(file))

    for _ in context.each(copy, manifest.files.values()):
        pass


def _check_alive(checkpoint: Checkpoint) -> Checkpoint:
    ref = checkpoint.ref
    if checkpoint.failure is not None:
        failure = checkpoint.failure
        raise Refused(
            f"Checkpoint {ref} has failed ({failure.reason}): {failure.message}; {describe(failure.blame)}. "
            "The pipeline goes on; trigger the next one."
        )
    if checkpoint.phase in (Phase.DISCARDING, Phase.DISCARDED):
        raise Refused(f"Checkpoint {ref} is {checkpoint.phase}: retention has let it go.")
    if checkpoint.phase is Phase.TRIGGERED:
        raise TryAgain(f"Checkpoint {ref} can not complete yet: not every query has reached its cut.")
    if checkpoint.phase is Phase.IN_PROGRESS:
        raise LostRace(f"Checkpoint {ref} was not decided: another attempt took over.")
    return checkpoint
