"""Manifests in storage: built from the store's rows, so that any actor builds the same bytes; read back and checked."""

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.metastore import Dossier
from airflow_provider_ckpt.protocol.errors import Corrupt, NotFound, TryAgain
from airflow_provider_ckpt.protocol.manifest import Manifest, Part, digest, read_manifest
from airflow_provider_ckpt.protocol.paths import manifest_path
from airflow_provider_ckpt.protocol.records import AckRow, Checkpoint, Decision, Ref
from airflow_provider_ckpt.protocol.timeline import timeline_of


def build_manifest(dossier: Dossier) -> Manifest:
    """What all participants of a fully acknowledged checkpoint said, as one document.

    :raises TryAgain: while somebody has not acknowledged.
    """
    checkpoint = dossier.checkpoint
    timeline = timeline_of(dossier.attempts, checkpoint.attempt)
    return Manifest(
        ref=checkpoint.ref,
        kind=checkpoint.kind,
        name=checkpoint.name,
        attempt=checkpoint.attempt,
        timeline=timeline.upto(checkpoint.ref.id),
        triggered_at=checkpoint.triggered_at,
        requested_by=checkpoint.requested_by,
        reason=checkpoint.reason,
        graph=dossier.graph,
        cuts=dossier.cuts,
        parts=tuple(_part(checkpoint.ref, row) for row in dossier.rows),
    )


def decision_on(manifest: Manifest, data: bytes, dossier: Dossier) -> Decision:
    """The facts that the decision records: which manifest, and what it took."""
    files = manifest.files
    own = f"files/{manifest.attempt}/{manifest.ref.id}/"
    return Decision(
        manifest_path=manifest_path(manifest.home),
        manifest_sha256=digest(data),
        new_bytes=sum(row.ack.new_bytes for row in dossier.rows if row.ack is not None),
        full_bytes=sum(file.size for file in files.values()),
        new_files=sum(path.startswith(own) for path in files),
        full_files=len(files),
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


def _part(ref: Ref, row: AckRow) -> Part:
    if row.ack is None:
        raise TryAgain(f"Checkpoint {ref} can not complete yet: {row.participant} has not acknowledged.")
    return Part(
        participant=row.participant,
        query=row.query,
        kind=row.kind,
        files=row.ack.files,
        positions=row.ack.positions,
        staged=row.ack.staged,
    )
