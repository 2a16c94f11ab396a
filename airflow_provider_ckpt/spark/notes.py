"""What an attempt notes in its folder for the one that starts from its tip."""

from collections.abc import Mapping
from pathlib import Path

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.protocol.codec import Json, JsonObject, canonical, parse
from airflow_provider_ckpt.protocol.cut import Graph, Query, graph_from_json
from airflow_provider_ckpt.protocol.errors import CkptError, Corrupt
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.holding import Known
from airflow_provider_ckpt.spark.streaming.identity import Identity
from airflow_provider_ckpt.storage.base import Digest

Descriptions = dict[str, JsonObject]  # what each query is made of, by name


def write_description(folder: AttemptFolder, query: Query, made_of: JsonObject) -> None:
    """Keep what a query is made of, so that a changed program is noticed."""
    _write(folder.described(query.name), {"query": query.to_json(), "described": made_of})


def read_descriptions(folder: AttemptFolder) -> tuple[Graph, Descriptions]:
    """The queries that an attempt has started, or taken over from a tip."""
    queries: list[Query] = []
    described = {}
    for file in sorted(folder.descriptions):
        fields = parse(str(file), file.read_bytes())
        queries += graph_from_json([fields.object("query")]).queries
        described[queries[-1].name] = fields.object("described")
    return Graph(tuple(queries)), described


def write_known(folder: AttemptFolder, known: Known) -> None:
    """Keep which files lie in the storage already, so that the next attempt need not copy them again."""
    _write(folder.known, known.to_json())


def read_known(context: Context, folder: AttemptFolder) -> Known:
    """Nothing, where nothing was noted or it can not be believed: then everything is copied once more."""
    known = Known()
    if not folder.known.exists():
        return known
    try:
        fields = parse(str(folder.known), folder.known.read_bytes())
        checkpoint = context.store.checkpoints.get(Ref(folder.pipeline, fields.whole("base")))
        identities = {name: _identity(value) for name, value in fields.object("identities").items()}
        known.learn(load_manifest(context, checkpoint), identities)
    except (CkptError, TypeError, ValueError):
        known.forget()
    return known


def write_laid_out(folder: AttemptFolder, digests: Mapping[str, Digest]) -> None:
    """Keep the checksums of the files that an attempt starts from: Spark keeps some only of what it writes itself."""
    _write(folder.laid_out, {"files": {name: [each.size, each.sha256] for name, each in digests.items()}})


def read_laid_out(folder: AttemptFolder) -> dict[str, Digest]:
    """:raises Corrupt: when it can not be read."""
    if not folder.laid_out.exists():
        return {}
    fields = parse(str(folder.laid_out), folder.laid_out.read_bytes())
    return {name: _digest(folder, value) for name, value in fields.object("files").items()}


def _digest(folder: AttemptFolder, value: Json) -> Digest:
    match value:
        case [int(size), str(sha256)]:
            return Digest(size=size, sha256=sha256)
    raise Corrupt(f"{folder.laid_out} has {value!r:.60}, which is no checksum.")


def _write(file: Path, document: JsonObject) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_bytes(canonical(document))
    partial.replace(file)


def _identity(value: object) -> Identity:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} does not tell a file")
    inode, size, changed = value
    return int(inode), int(size), int(changed)
