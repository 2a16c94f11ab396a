"""What the retained checkpoints of a pipeline hold in the storage: what is shared, and what each alone keeps there."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.protocol.errors import Corrupt
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint

Named = Mapping[str, int]  # stored path -> size


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    checkpoint: Checkpoint
    full_bytes: int
    unique_bytes: int  # in files that no other retained checkpoint names: what letting it go would free
    files: int
    problem: str | None  # its manifest can not be read: nobody knows what it holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    holdings: tuple[Holding, ...]  # oldest first
    bytes: int  # every file once
    files: int


def hold(context: Context, pipeline: str) -> Held:
    """Read the manifests of all retained checkpoints; no data file and no listing is read."""
    retained = [each for each in context.store.views.inventory(pipeline).retained if each.phase is Phase.COMPLETED]
    found = list(context.each(lambda each: _named_by(context, each), retained))
    named = [files for files in found if not isinstance(files, Corrupt)]
    users = Counter(path for files in named for path in files)
    sizes = {path: size for files in named for path, size in files.items()}
    return Held(
        holdings=tuple(_holding(each, files, users) for each, files in zip(retained, found, strict=True)),
        bytes=sum(sizes.values()),
        files=len(sizes),
    )


def _holding(checkpoint: Checkpoint, found: Named | Corrupt, users: Mapping[str, int]) -> Holding:
    files = {} if isinstance(found, Corrupt) else found
    return Holding(
        checkpoint=checkpoint,
        full_bytes=sum(files.values()),
        unique_bytes=sum(size for path, size in files.items() if users[path] == 1),
        files=len(files),
        problem=str(found) if isinstance(found, Corrupt) else None,
    )


def _named_by(context: Context, checkpoint: Checkpoint) -> Named | Corrupt:
    try:
        manifest = load_manifest(context, checkpoint)
    except Corrupt as error:
        return error
    return {manifest.located(file): file.size for file in manifest.files.values()}
