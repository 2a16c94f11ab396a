"""Verifying a checkpoint: every byte that its manifest names is read and hashed again.

Checkpoints share files: what one of them finds damaged is damaged in all that name it, and they are marked as well.
"""

from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.identity import check_storage
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.protocol.errors import Corrupt, NotFound, Refused
from airflow_provider_ckpt.protocol.manifest import Manifest
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint, FileRef, Ref, Verdict
from airflow_provider_ckpt.storage.base import digest_stream

OnBytes = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    ref: Ref
    files: int
    bytes: int
    problems: tuple[str, ...]
    damaged: frozenset[str] = frozenset()  # stored paths

    @property
    def is_intact(self) -> bool:
        return not self.problems


def verify(context: Context, ref: Ref, on_bytes: OnBytes = lambda count: None) -> Verification:
    """Re-hash a completed checkpoint and note the verdict. An unreachable storage is no verdict: it raises.

    :raises Refused: when the checkpoint is not completed, or the storage is not the pipeline's own.
    """
    check_storage(context, ref.pipeline)
    checkpoint = context.store.checkpoints.get(ref)
    if checkpoint.phase is not Phase.COMPLETED:
        raise Refused(f"Checkpoint {ref} is {checkpoint.phase}; only completed checkpoints can be verified.")
    found = inspect(context, checkpoint, on_bytes)
    verdict = Verdict.VALIDATED if found.is_intact else Verdict.CORRUPT
    context.store.checkpoints.judge(ref, verdict, "; ".join(found.problems[:5]), actor=context.actor)
    if found.damaged:
        _mark_others(context, ref, found.damaged)
    return found


def inspect(context: Context, checkpoint: Checkpoint, on_bytes: OnBytes = lambda count: None) -> Verification:
    """Re-hash without noting anything."""
    try:
        manifest = load_manifest(context, checkpoint)
    except Corrupt as error:
        return Verification(ref=checkpoint.ref, files=0, bytes=0, problems=(str(error),))
    files = list(manifest.files.values())
    results = list(context.each(lambda file: _problem(context, manifest, file, on_bytes), files))
    return Verification(
        ref=checkpoint.ref,
        files=len(files),
        bytes=sum(file.size for file in files),
        problems=tuple(problem for problem in results if problem is not None),
        damaged=frozenset(
            manifest.located(file) for file, problem in zip(files, results, strict=True) if problem is not None
        ),
    )


def _mark_others(context: Context, ref: Ref, damaged: frozenset[str]) -> None:
    """The same files, in every other checkpoint that names them."""
    for each in context.store.views.inventory(ref.pipeline).retained:
        if each.ref == ref or each.phase is Phase.DISCARDING or each.verdict is Verdict.CORRUPT:
            continue
        if shared := sorted(_named_by(context, each) & damaged):
            detail = f"{shared[0]} is damaged, as {ref} has shown."
            context.store.checkpoints.judge(each.ref, Verdict.CORRUPT, detail, actor=context.actor)


def _named_by(context: Context, checkpoint: Checkpoint) -> set[str]:
    try:
        manifest = load_manifest(context, checkpoint)
    except Corrupt:
        return set()  # whoever verifies this one will see it
    return {manifest.located(file) for file in manifest.files.values()}


def _problem(context: Context, manifest: Manifest, file: FileRef, on_bytes: OnBytes) -> str | None:
    path = manifest.located(file)
    try:
        with context.storage.open(path) as stream:
            found = digest_stream(stream, on_bytes)
    except NotFound:
        return f"{path} is missing."
    if found.size != file.size:
        return f"{path} has {found.size:,} bytes, its manifest says {file.size:,}."
    if found.sha256 != file.sha256:
        return f"{path} has SHA-256 {found.sha256[:12]}…, its manifest says {file.sha256[:12]}…."
    return None
