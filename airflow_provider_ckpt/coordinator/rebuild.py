"""Rebuilding the store from the manifests in storage, when the database is lost.

Only manifests with a `decided` marker count. Existing rows are never changed. Ids and attempt numbers go on well after
the highest ones seen in the storage and in the targets, because some may have been given out and left no trace. Targets
also tell of an attempt that went back to an older checkpoint and has left none of its own: what came after is abandoned
then. Settings are not in the storage: a rebuilt pipeline gets the defaults, with a retention that keeps all that was
found until its owner sets another.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airflow_provider_ckpt.coordinator.commit import Committer
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.identity import own_storage, read_identity
from airflow_provider_ckpt.metastore import Recovered
from airflow_provider_ckpt.protocol.errors import Corrupt, NotFound
from airflow_provider_ckpt.protocol.manifest import Manifest, digest, read_decided_marker, read_manifest
from airflow_provider_ckpt.protocol.paths import home_of_manifest, manifest_path
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.protocol.recovery import SinkMarker

_log = logging.getLogger(__name__)
Reach = Callable[[Manifest], Mapping[str, Committer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    found: tuple[Recovered, ...]
    added: tuple[Ref, ...]  # those that the store did not have
    damaged: tuple[str, ...]  # what could not be believed, and why


def rebuild(
    context: Context,
    pipeline: str | None = None,
    *,
    dry_run: bool = False,
    on_file: Callable[[], None] = lambda: None,
    reach: Reach = lambda manifest: {},
) -> RebuildReport:
    """Add to the store every decided checkpoint that the storage knows and the store does not.

    :param reach: the sinks of a checkpoint, as far as they can be reached from here.
    """
    found: dict[str, list[Recovered]] = defaultdict(list)
    damaged: list[str] = []
    for path in _markers(context, pipeline, on_file):
        try:
            each = _recover(context, path)
        except (Corrupt, NotFound) as error:
            damaged.append(str(error))
        else:
            found[each.manifest.ref.pipeline].append(each)
    added = [ref for name, group in sorted(found.items()) for ref in _add(context, name, group, reach, dry_run=dry_run)]
    return RebuildReport(
        found=tuple(each for group in found.values() for each in group), added=tuple(added), damaged=tuple(damaged)
    )


def _add(context: Context, pipeline: str, found: list[Recovered], reach: Reach, *, dry_run: bool) -> list[Ref]:
    if dry_run:
        return context.store.recovery.missing(pipeline, found)
    identity = read_identity(context, pipeline) or context.new_token()
    newest = max((each.manifest for each in found), key=lambda manifest: manifest.ref.id)
    added = context.store.recovery.add(
        pipeline, found, identity=identity, actor=context.actor, markers=_ask(pipeline, reach(newest))
    )
    own_storage(context, pipeline)
    return added


def _ask(pipeline: str, sinks: Mapping[str, Committer]) -> dict[str, SinkMarker]:
    """What the targets say; one that does not answer is asked again by the driver, before it starts."""
    markers = {}
    for sink, committer in sinks.items():
        try:
            markers[sink] = committer.marker(pipeline)
        except Exception as error:  # noqa: BLE001 - a target may raise anything
            _log.warning("The target of %s/%s can not be asked from here: %s", pipeline, sink, error)
    return markers


def _markers(context: Context, pipeline: str | None, on_file: Callable[[], None]) -> list[str]:
    markers = []
    for file in context.storage.list("" if pipeline is None else f"{pipeline}/"):
        on_file()
        match file.path.split("/"):
            case [_, "checkpoints" | "savepoints", _, "decided"]:
                markers.append(file.path)
    return markers


def _recover(context: Context, marker: str) -> Recovered:
    path = manifest_path(home_of_manifest(marker))
    sha256 = read_decided_marker(f"The marker {marker}", context.storage.read(marker))
    data = context.storage.read(path)
    if digest(data) != sha256:
        raise Corrupt(f"The manifest {path} is not the one that was decided upon: its SHA-256 differs from the marker.")
    manifest = read_manifest(f"The manifest {path}", data)
    _check_place(path, manifest)
    return Recovered(manifest=manifest, manifest_path=path, manifest_sha256=sha256)


def _check_place(path: str, manifest: Manifest) -> None:
    if path != manifest_path(manifest.home):
        raise Corrupt(f"The manifest {path} describes {manifest.ref}, which belongs into {manifest.home}.")
