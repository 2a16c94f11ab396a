"""Laying out where a new attempt starts: from a checkpoint's manifest alone, or from the dead attempt's tip.

A stored file becomes a second name of itself where the file system allows it, else a download. Files in which Spark
has written absolute paths are written anew for the new place.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.codec import Fields
from airflow_provider_ckpt.protocol.cut import Graph
from airflow_provider_ckpt.protocol.errors import CkptError, Corrupt, Refused
from airflow_provider_ckpt.protocol.manifest import Manifest
from airflow_provider_ckpt.protocol.records import FileRef
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.holding import Identity, identify
from airflow_provider_ckpt.spark.packing import unpack
from airflow_provider_ckpt.spark.relocating import Move, has_paths, relocate
from airflow_provider_ckpt.spark.streaming import logs
from airflow_provider_ckpt.spark.streaming.hadoop_crc import find_damage
from airflow_provider_ckpt.spark.streaming.location import Location, Piece
from airflow_provider_ckpt.spark.streaming.sink_log import FOLDER, SinkLog
from airflow_provider_ckpt.storage.local_files import link_or_copy

OnFile = Callable[[int], None]  # its bytes


def lay_out_checkpoint(
    context: Context, manifest: Manifest, folder: AttemptFolder, on_file: OnFile = lambda size: None
) -> dict[str, Identity]:
    """Make the new attempt's folder from a manifest; says which of its files are those in the storage."""
    moves = [(root_of(manifest), folder.root)]
    present = _laid_out_data(manifest)

    def lay_out(file: FileRef) -> dict[str, Identity]:
        if file.members or has_paths(file.name):
            contents = _read(context, manifest, file)
            identities = {name: identity for name, data in contents if (identity := write(name, data)) is not None}
        else:
            context.storage.fetch(manifest.located(file), folder.root / file.name)
            identities = {file.name: _checked(folder.root / file.name, file)}
        on_file(file.size)
        return identities

    def write(name: str, data: bytes) -> Identity | None:
        target = folder.root / name
        if has_paths(name):
            _write_new(target, _without_absent(name, relocate(data, moves), folder, present))
            return None
        _write_new(target, data)
        return identify(target)

    laid_out = {name: each for found in context.each(lay_out, manifest.laid_out) for name, each in found.items()}
    _settle_logs(manifest.graph, folder)
    return laid_out


def root_of(manifest: Manifest) -> Path:
    """The folder of the attempt that was captured."""
    return Path(Fields("the manifest's cut", manifest.cuts[0].properties).text("root"))


def lay_out_tip(graph: Graph, dead: AttemptFolder, folder: AttemptFolder) -> None:
    """Make the new attempt's folder from the dead one's: the newest committed batches, and what was planned after."""
    moves = [(dead.root, folder.root)]
    for query in graph.queries:
        folder.location(query.name).mkdir(parents=True)  # also of one that died before Spark wrote there
        for piece in _tip_pieces(dead.location(query.name)):
            _place(piece, folder.location(query.name) / piece.name, moves)
        for channel in query.writes:
            for piece in _channel_pieces(dead.channel(channel)):
                _place(piece, folder.channel(channel) / piece.name, moves)
    _settle_logs(graph, folder)


def find_tip_damage(graph: Graph, dead: AttemptFolder) -> str | None:
    """Why nothing can start from the dead attempt's own locations; None when they are intact."""
    try:
        for query in graph.queries:
            if not dead.location(query.name).is_dir():
                return f"{dead.location(query.name)} is not there"
            pieces = [*_tip_pieces(dead.location(query.name))]
            for channel in query.writes:
                pieces += _channel_pieces(dead.channel(channel))
            damaged = next((why for piece in pieces if (why := _damage_of(piece)) is not None), None)
            if damaged is not None:
                return damaged
    except (CkptError, OSError) as error:
        return str(error)
    return None


def lay_out_output(old: Path, new: Path, log: Iterable[tuple[str, bytes]]) -> None:
    """Give a new attempt the output up to its start: the files that the log names, and the log itself.

    :raises Refused: when a published file is gone: the output would be incomplete.
    """
    for name, data in log:
        for line in data.decode().split("\n")[1:]:
            _take_over(old, new, logs.below(old, logs.path_of(old / FOLDER / name, line)))
        _write_new(new / FOLDER / name, relocate(data, [(old, new)]))
    logs.settle(new / FOLDER)


def tip_output(old: Path) -> Iterator[tuple[str, bytes]]:
    """The whole log of a dead attempt's output, with the batch that was published and not committed."""
    log = SinkLog(old)
    for piece in log.upto(log.newest):
        yield piece.source.name, piece.source.read_bytes()


def stored_output(context: Context, manifest: Manifest, query: str) -> Iterator[tuple[str, bytes]]:
    prefix = f"outputs/{query}/{FOLDER}/"
    for file in manifest.laid_out:
        if any(name.startswith(prefix) for name in file.names):
            for name, data in _read(context, manifest, file):
                if name.startswith(prefix):
                    yield name.removeprefix(prefix), data


# inside


def _tip_pieces(root: Path) -> Iterator[Piece]:
    location = Location(root)
    batch, planned = location.tip
    for portion in location.needs(batch, planned=planned):
        yield from portion.pieces


def _channel_pieces(folder: Path) -> Iterator[Piece]:
    log = SinkLog(folder)
    yield from log.upto(log.newest)
    yield from map(log.data, log.published(log.newest))


def _settle_logs(graph: Graph, folder: AttemptFolder) -> None:
    for query in graph.queries:
        for source in (folder.location(query.name) / "sources").glob("*"):
            logs.settle(source)
        for channel in query.writes:
            logs.settle(folder.channel(channel) / FOLDER)


def _damage_of(piece: Piece) -> str | None:
    if not piece.source.is_file():
        return f"{piece.source} is gone"
    return find_damage(piece.source)


def _place(piece: Piece, target: Path, moves: Sequence[Move]) -> None:
    if piece.data is not None or has_paths(f"{target.parent.name}/{target.name}") or has_paths(piece.name):
        data = piece.data if piece.data is not None else piece.source.read_bytes()
        _write_new(target, relocate(data, moves))
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    link_or_copy(piece.source, target)


def _take_over(old: Path, new: Path, name: str) -> None:
    target = new / name
    if target.exists():  # a compacted log names what a later file of it names again
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        link_or_copy(old / name, target)
    except FileNotFoundError as error:
        raise Refused(
            f"The output {old} can not be taken over: {name} is gone, and its log says that it was published. Bring "
            "it back, or restore a checkpoint from before it."
        ) from error


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
