"""What an attempt notes in its folder for the one that starts from its tip."""

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.protocol.codec import JsonObject, canonical, parse
from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.holding import Identity, Known


def write_description(folder: AttemptFolder, query: str, document: JsonObject) -> None:
    """Keep what a query is made of, so that a changed program is noticed."""
    file = folder.described(query)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(canonical({"described": document}))


def read_description(folder: AttemptFolder, query: str) -> JsonObject:
    file = folder.described(query)
    return parse(str(file), file.read_bytes()).object("described") if file.exists() else {}


def write_known(folder: AttemptFolder, known: Known) -> None:
    """Keep which files lie in the storage already, so that the next attempt need not copy them again."""
    partial = folder.known.with_suffix(".partial")
    partial.write_bytes(canonical(known.to_json()))
    partial.replace(folder.known)


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


def _identity(value: object) -> Identity:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} does not tell a file")
    inode, size, changed = value
    return int(inode), int(size), int(changed)
