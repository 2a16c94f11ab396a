"""Laying out where a new attempt starts: from a checkpoint's manifest alone, or from the dead attempt's tip.

A stored file becomes a second name of itself where the file system allows it, else a download. Files in which Spark
has written absolute paths are written anew for the new place.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.codec import Fields
from airflow_provider_ckpt.protocol.cut import Graph
from airflow_provider_ckpt.protocol.errors import CkptError, Corrupt
from airflow_provider_ckpt.protocol.manifest import Manifest
from airflow_provider_ckpt.protocol.records import FileRef
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.notes import read_descriptions, read_laid_out, write_laid_out
from airflow_provider_ckpt.spark.packing import unpack
from airflow_provider_ckpt.spark.relocating import Move, has_paths, relocate
from airflow_provider_ckpt.spark.streaming import logs
from airflow_provider_ckpt.spark.streaming.hadoop_crc import copy_checksums, find_damage, has_checksums
from airflow_provider_ckpt.spark.streaming.identity import Identity, identify
from airflow_provider_ckpt.spark.streaming.location import Location, Piece, source_names
from airflow_provider_ckpt.spark.streaming.sink_log import FOLDER, SinkLog
from airflow_provider_ckpt.storage.base import Digest, digest_bytes, digest_stream
from airflow_provider_ckpt.storage.local_files import link_or_copy

OnFile = Callable[[int], None]  # its bytes


def lay_out_checkpoint(
    context: Context, manifest: Manifest, folder: AttemptFolder, on_file: OnFile = lambda size: None
) -> dict[str, Identity]:
    """Make the new attempt's folder from a manifest; says which of its files are those in the storage."""
    moves = [(root_of(manifest), folder.root)]
    present = _laid_out_data(manifest)

    def lay_out(file: FileRef) -> list[_LaidOut]:
        if file.members or has_paths(file.name):
            laid_out = [write(name, data) for name, data in _read(context, manifest, file)]
        else:
            context.storage.fetch(manifest.located(file), folder.root / file.name)
            identity = _checked(folder.root / file.name, file)
            laid_out = [_LaidOut(file.name, Digest(size=file.size, sha256=file.sha256), identity)]
        on_file(file.size)
        return laid_out

    def write(name: str, data: bytes) -> _LaidOut:
        if has_paths(name):
            data = _without_absent(name, relocate(data, moves), folder, present)
            _write_new(folder.root / name, data)
            return _LaidOut(name, digest_bytes(data), None)
        _write_new(folder.root / name, data)
        return _LaidOut(name, digest_bytes(data), identify(folder.root / name))

    laid_out = [each for found in context.each(lay_out, manifest.laid_out) for each in found]
    _settle_logs(manifest.graph, folder)
    write_laid_out(folder, {each.name: each.digest for each in laid_out})
    return {each.name: each.identity for each in laid_out if each.identity is not None}


def root_of(manifest: Manifest) -> Path:
    """The folder of the attempt that was captured."""
    return Path(Fields("the manifest's cut", manifest.cuts[0].properties).text("root"))


def lay_out_tip(graph: Graph, dead: AttemptFolder, folder: AttemptFolder) -> None:
    """Make the new attempt's folder from the dead one's: the newest committed batches, and what was planned after.

    :raises Corrupt: when a file is damaged.
    """
    moves = [(dead.written_as, folder.root)]
    known = read_laid_out(dead)
    digests: dict[str, Digest] = {}
    for query in graph.queries:
        folder.location(query.name).mkdir(parents=True, exist_ok=True)  # also of one that died before Spark wrote there
    for name, piece in _tip_pieces(graph, dead):
        if (damage := _damage_of(dead, piece, known)) is not None:
            raise Corrupt(f"The tip of attempt {dead.attempt} of {dead.pipeline} is damaged: {damage}.")
        digest = _place(name, piece, folder, moves) or known.get(_below(dead, piece))
        if digest is not None:
            digests[name] = digest
    _settle_logs(graph, folder)
    write_laid_out(folder, digests)


def find_tip_damage(graph: Graph, dead: AttemptFolder) -> str | None:
    """Why nothing can start from the dead attempt's own locations; None when they are intact."""
    try:
        known = read_laid_out(dead)
        missing = next((query.name for query in graph.queries if not dead.location(query.name).is_dir()), None)
        if missing is not None:
            return f"{dead.location(missing)} is not there"
        damaged = (_damage_of(dead, piece, known) for _, piece in _tip_pieces(graph, dead))
        return next((why for why in damaged if why is not None), None)
    except (CkptError, OSError) as error:
        return str(error)


# inside


@dataclass(frozen=True, slots=True)
class _LaidOut:
    name: str  # below the attempt's folder
    digest: Digest
    identity: Identity | None  # None: it is not as it lies in the storage


def _tip_pieces(graph: Graph, dead: AttemptFolder) -> Iterator[tuple[str, Piece]]:
    """What a tip is made of, by its name below the attempt's folder; no log reaches beyond the planned batch."""
    _, described = read_descriptions(dead)
    for query in graph.queries:
        location = Location(dead.location(query.name))
        batch, planned = location.tip
        names = source_names(described.get(query.name, {}))
        for portion in location.needs(batch, planned=planned, names=names):
            for piece in portion.pieces:
                yield f"queries/{query.name}/{piece.name}", piece
        for channel in query.writes:
            log = SinkLog(dead.channel(channel), dead.written_as / "channels" / channel)
            upto = planned if planned is not None else batch
            for piece in (*log.upto(upto), *map(log.data, log.published(upto))):
                yield f"channels/{channel}/{piece.name}", piece


def _settle_logs(graph: Graph, folder: AttemptFolder) -> None:
    for query in graph.queries:
        for source in (folder.location(query.name) / "sources").glob("*"):
            logs.settle(source)
        for channel in query.writes:
            logs.settle(folder.channel(channel) / FOLDER)


def _damage_of(dead: AttemptFolder, piece: Piece, laid_out: Mapping[str, Digest]) -> str | None:
    """By the checksums that Spark keeps of what it writes, or by ours of what was laid out."""
    if not piece.source.is_file():
        return f"{piece.source} is gone"
    if has_checksums(piece.source):
        return find_damage(piece.source)
    wanted = laid_out.get(_below(dead, piece))
    if wanted is None:
        return f"{piece.source} has no checksum"
    with piece.source.open("rb") as stream:
        return None if digest_stream(stream) == wanted else f"{piece.source} does not match its checksum"


def _below(dead: AttemptFolder, piece: Piece) -> str:
    return str(piece.source.relative_to(dead.root))


def _place(name: str, piece: Piece, folder: AttemptFolder, moves: Sequence[Move]) -> Digest | None:
    """Says the checksum of what was written anew; what is linked takes its checksums along."""
    target = folder.root / name
    if piece.data is not None or has_paths(name):
        data = relocate(piece.data if piece.data is not None else piece.source.read_bytes(), moves)
        _write_new(target, data)
        return digest_bytes(data)
    target.parent.mkdir(parents=True, exist_ok=True)
    link_or_copy(piece.source, target)
    copy_checksums(piece.source, target)
    return None


def _laid_out_data(manifest: Manifest) -> frozenset[str]:
    """The names of all data in flight: channels' logs keep nothing else."""
    return frozenset(name for file in manifest.laid_out for name in file.names if name.startswith("channels/"))


def _without_absent(name: str, data: bytes, folder: AttemptFolder, present: frozenset[str]) -> bytes:
    """A channel's log without what all readers have read: those files are not laid out."""
    if not name.startswith("channels/"):
        return data
    lines = data.decode().split("\n")[1:]
    kept = [line for line in lines if logs.below(folder.root, logs.path_of(Path(name), line)) in present]
    return logs.write_log(kept)


def _read(context: Context, manifest: Manifest, file: FileRef) -> Iterator[tuple[str, bytes]]:
    """The contents by name: of a file, or of what is needed of a pack."""
    data = context.storage.read(manifest.located(file))
    return unpack(file, data) if file.members else iter([(file.name, data)])


def _checked(target: Path, file: FileRef) -> Identity:
    identity = identify(target)
    if identity[1] != file.size:
        raise Corrupt(f"{file.path} has {identity[1]:,} bytes, its manifest says {file.size:,}.")
    return identity


def _write_new(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        file.write(data)
