"""Manifests in storage: built from the store's rows, so that any actor builds the same bytes; read back and checked."""

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.errors import Corrupt, NotFound
from airflow_provider_ckpt.protocol.manifest import Manifest, Part, digest, read_manifest
from airflow_provider_ckpt.protocol.records import AckRow, Checkpoint, Decision
from airflow_provider_ckpt.protocol.timeline import timeline_of


def build_manifest(context: Context, checkpoint: Checkpoint) -> Manifest:
    """What all participants of a fully acknowledged checkpoint said, as one document."""
    store, ref = context.store, checkpoint.ref
    timeline = timeline_of(store.attempts.of(ref.pipeline), checkpoint.attempt)
    return Manifest(
        ref=ref,
        kind=checkpoint.kind,
        name=checkpoint.name,
        attempt=checkpoint.attempt,
        timeline=timeline.upto(ref.id),
        triggered_at=checkpoint.triggered_at,
        requested_by=checkpoint.requested_by,
        reason=checkpoint.reason,
        graph=store.attempts.graph(ref.pipeline, checkpoint.attempt),
        cuts=tuple(store.barriers.cuts(ref).values()),
        parts=tuple(_part(row) for row in store.acks.rows(ref)),
    )


def decision_on(context: Context, manifest: Manifest, manifest_path: str) -> Decision:
    """The facts that the decision records: which manifest, and what it took."""
    files = manifest.files.values()
    new = sum(row.ack.new_bytes for row in context.store.acks.rows(manifest.ref) if row.ack is not None)
    own = f"files/{manifest.attempt}/{manifest.ref.id}/"
    return Decision(
        manifest_path=manifest_path,
        manifest_sha256=digest(manifest.to_bytes()),
        new_bytes=new,
        full_bytes=sum(file.size for file in files),
        new_files=sum(file.path.startswith(own) for file in files),
        full_files=len(manifest.files),
    )


def load_manifest(context: Context, checkpoint: Checkpoint) -> Manifest:
    """Read the manifest that was decided upon.

    :raises Corrupt: when it is missing, is not the one that was decided upon, or can not be believed.
    """
    decision = checkpoint.decision
    if decision is None:
        raise NotFound(f"Checkpoint {checkpoint.ref} is {checkpoint.phase} and has no manifest.")
    what = f"The manifest of {checkpoint.ref} ({decision.manifest_path})"
    try:
        data = context.storage.read(decision.manifest_path)
    except NotFound as error:
        raise Corrupt(f"{what} is missing.") from error
    if (found := digest(data)) != decision.manifest_sha256:
        raise Corrupt(f"{what} has SHA-256 {found[:12]}…, the decision says {decision.manifest_sha256[:12]}….")
    return read_manifest(what, data)


def _part(row: AckRow) -> Part:
    if row.ack is None:
        raise Corrupt(f"Participant {row.participant} has not acknowledged; a manifest can not be made.")
    return Part(
        participant=row.participant,
        query=row.query,
        kind=row.kind,
        files=row.ack.files,
        positions=row.ack.positions,
        staged=row.ack.staged,
    )
