"""What an attempt notes in its folder for the one that starts from its tip."""

from pathlib import Path

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.protocol.codec import JsonObject, canonical, parse
from airflow_provider_ckpt.protocol.cut import Graph, Query, graph_from_json
from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.holding import Identity, Known

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
