"""The manifest: the self-describing file of a checkpoint, with everything that a restore needs without the store.

Canonical JSON, so that the same checkpoint always gives the same bytes and the same digest. Paths of files are
relative to the manifest's *base*: the pipeline's folder for a checkpoint, its own folder for a savepoint, which may
therefore be moved. Reading checks everything; a version that this package does not know is refused by name.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_provider_ckpt.protocol.codec import Fields, Json, JsonObject, canonical, parse, write_time
from airflow_provider_ckpt.protocol.cut import Graph, InFlight, graph_from_json, in_flight
from airflow_provider_ckpt.protocol.errors import Corrupt, Misused, UnknownVersion
from airflow_provider_ckpt.protocol.paths import check_name, home
from airflow_provider_ckpt.protocol.records import SHA256, Consumed, Cut, FileRef, Kind, Member, ParticipantKind, Ref
from airflow_provider_ckpt.protocol.timeline import Segment, Timeline

FORMAT = "airflow-provider-ckpt manifest"
VERSION = 1
VERSION_WITH_PACKS = 2  # written only where there are packs, so that what has none can be read by older packages


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one participant contributed."""

    participant: str
    query: str
    kind: ParticipantKind
    files: tuple[FileRef, ...]
    positions: JsonObject
    staged: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    ref: Ref
    kind: Kind
    name: str | None
    attempt: int
    timeline: Timeline
    triggered_at: datetime
    requested_by: str
    reason: str
    graph: Graph
    cuts: tuple[Cut, ...]
    parts: tuple[Part, ...]

    @property
    def base(self) -> str:
        """The folder that the paths of files are relative to, below the storage root."""
        return self.ref.pipeline if self.kind is Kind.CHECKPOINT else self.home

    @property
    def home(self) -> str:
        """The folder of the manifest itself, below the storage root."""
        return home(self.ref.pipeline, self.ref.id, self.name)

    @property
    def files(self) -> dict[str, FileRef]:
        """Every file once, by its path."""
        return {file.path: file for part in self.parts for file in part.files}

    @property
    def laid_out(self) -> tuple[FileRef, ...]:
        """What a restore lays out: every file once, with all members that any part needs, and every name once."""
        seen: set[str] = set()
        found = []
        for file in joined(file for part in self.parts for file in part.files):
            if not seen.issuperset(file.names):
                members = tuple(member for member in file.members if member.name not in seen)
                found.append(replace(file, members=members))
                seen.update(file.names)
        return tuple(found)

    @property
    def sinks(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.kind is ParticipantKind.SINK)

    @property
    def in_flight(self) -> tuple[InFlight, ...]:
        return in_flight({cut.query: cut for cut in self.cuts})

    def located(self, file: FileRef) -> str:
        """Where a file is, below the storage root."""
        return f"{self.base}/{file.path}"

    def to_bytes(self) -> bytes:
        return canonical(
            {
                "format": FORMAT,
                "version": VERSION_WITH_PACKS if any(file.members for file in self.files.values()) else VERSION,
                "pipeline": self.ref.pipeline,
                "checkpoint": self.ref.id,
                "kind": self.kind,
                "name": self.name,
                "attempt": self.attempt,
                "timeline": [[segment.attempt, segment.upto] for segment in self.timeline.segments],
                "triggered_at": write_time(self.triggered_at),
                "requested_by": self.requested_by,
                "reason": self.reason,
                "queries": self.graph.to_json(),
                "cuts": [_cut_to_json(cut) for cut in sorted(self.cuts, key=lambda cut: cut.query)],
                "parts": [_part_to_json(part) for part in sorted(self.parts, key=lambda part: part.participant)],
            }
        )


def joined(files: Iterable[FileRef]) -> tuple[FileRef, ...]:
    """Every file once, by its path; a pack with all members that are named."""
    by_path: dict[str, list[FileRef]] = {}
    for file in files:
        by_path.setdefault(file.path, []).append(file)
    return tuple(_join(same) for same in by_path.values())


def _join(same: Sequence[FileRef]) -> FileRef:
    if len(same) == 1 or not same[0].members:
        return same[0]
    members = {member.name: member for file in same for member in file.members}
    return replace(same[0], members=tuple(sorted(members.values(), key=lambda member: member.offset)))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_manifest(what: str, data: bytes) -> Manifest:
    """Read and check a manifest; `what` says in errors where it came from."""
    fields = parse(what, data)
    _check_version(what, fields)
    try:
        manifest = _from_fields(fields)
    except Misused as error:  # a value that no caller could have used either: the document is damaged
        raise Corrupt(f"{what}: {error}") from error
    fields.done()
    _check_names(what, manifest)
    _check_files(what, manifest)
    return manifest


def decided_marker(manifest_sha256: str) -> bytes:
    """The content of the marker that lies beside a manifest once it is decided."""
    return canonical({"manifest_sha256": manifest_sha256})


def read_decided_marker(what: str, data: bytes) -> str:
    fields = parse(what, data)
    sha256 = fields.text("manifest_sha256")
    fields.done()
    if not SHA256.fullmatch(sha256):
        raise Corrupt(f"{what} has no SHA-256 but {sha256!r:.80}.")
    return sha256


def file_to_json(file: FileRef) -> Json:
    document: dict[str, Json] = {"path": file.path, "name": file.name, "size": file.size, "sha256": file.sha256}
    if file.members:
        document["members"] = [[member.name, member.offset, member.size] for member in file.members]
    return document


def file_from_fields(fields: Fields) -> FileRef:
    file = FileRef(
        path=fields.text("path"),
        name=fields.text("name"),
        size=fields.whole("size"),
        sha256=fields.text("sha256"),
        members=tuple(map(_member, fields.sequence("members"))) if "members" in fields else (),
    )
    fields.done()
    return file


def _member(item: Json) -> Member:
    match item:
        case [str(name), int(offset), int(size)] if not isinstance(offset, bool) and not isinstance(size, bool):
            return Member(name=name, offset=offset, size=size)
    raise Corrupt(f"A pack has the member {item!r:.60} where a name, an offset and a size belong.")


def consumed_to_json(consumed: Iterable[Consumed]) -> Json:
    return [{"channel": each.channel, "writer": each.writer, "batch": each.batch} for each in consumed]


def consumed_from_items(items: Iterable[Fields]) -> tuple[Consumed, ...]:
    return tuple(map(_consumed, items))


def _consumed(fields: Fields) -> Consumed:
    consumed = Consumed(
        channel=fields.text("channel"), writer=fields.text("writer"), batch=fields.optional_whole("batch")
    )
    fields.done()
    return consumed


def _check_version(what: str, fields: Fields) -> None:
    if (written_as := fields.text("format")) != FORMAT:
        raise Corrupt(f"{what} is no manifest: its format is {written_as!r:.60}.")
    if (version := fields.whole("version")) not in (VERSION, VERSION_WITH_PACKS):
        raise UnknownVersion(
            f"{what} has manifest version {version}; this package reads versions {VERSION} and {VERSION_WITH_PACKS}. "
            "Use the version of airflow-provider-ckpt that wrote it, or a newer one."
        )


def _from_fields(fields: Fields) -> Manifest:
    name = fields.optional_text("name")
    return Manifest(
        ref=Ref(check_name("pipeline", fields.text("pipeline")), fields.whole("checkpoint")),
        kind=fields.choice("kind", Kind),
        name=None if name is None else check_name("savepoint", name),
        attempt=fields.whole("attempt"),
        timeline=Timeline(tuple(_segment(pair) for pair in fields.sequence("timeline"))),
        triggered_at=fields.time("triggered_at"),
        requested_by=fields.text("requested_by"),
        reason=fields.text("reason"),
        graph=graph_from_json(fields.sequence("queries")),
        cuts=tuple(map(_cut_from_fields, fields.items("cuts"))),
        parts=tuple(map(_part_from_fields, fields.items("parts"))),
    )


def _check_names(what: str, manifest: Manifest) -> None:
    if (manifest.kind is Kind.SAVEPOINT) != (manifest.name is not None):
        raise Corrupt(f"{what} is of a {manifest.kind} with the name {manifest.name!r}: only savepoints have one.")
    for noun, names in (
        ("cut of the query", [cut.query for cut in manifest.cuts]),
        ("part of the participant", [part.participant for part in manifest.parts]),
    ):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise Corrupt(f"{what} has more than one {noun} {twice[0]}.")


def _check_files(what: str, manifest: Manifest) -> None:
    seen: dict[str, FileRef] = {}
    for part in manifest.parts:
        for file in part.files:
            other = seen.setdefault(file.path, file)
            if (other.size, other.sha256, bool(other.members)) != (file.size, file.sha256, bool(file.members)):
                raise Corrupt(f"{what} names {file.path} twice, with different content.")


def _segment(pair: Json) -> Segment:
    match pair:
        case [int(attempt), int() | None as upto] if not isinstance(attempt, bool) and not isinstance(upto, bool):
            if attempt >= 0 and (upto is None or upto >= 0):
                return Segment(attempt=attempt, upto=upto)
    raise Corrupt(f"A manifest's timeline has {pair!r:.60} where an attempt and an id belong.")


def _cut_to_json(cut: Cut) -> Json:
    return {
        "query": cut.query,
        "batch": cut.batch,
        "consumed": consumed_to_json(cut.consumed),
        "properties": cut.properties,
    }


def _cut_from_fields(fields: Fields) -> Cut:
    cut = Cut(
        query=fields.text("query"),
        batch=fields.optional_whole("batch"),
        consumed=consumed_from_items(fields.items("consumed")),
        properties=fields.object("properties"),
    )
    fields.done()
    return cut


def _part_to_json(part: Part) -> Json:
    document: Mapping[str, Json] = {
        "participant": part.participant,
        "query": part.query,
        "kind": part.kind,
        "files": [file_to_json(file) for file in part.files],
        "positions": part.positions,
        "staged": part.staged,
    }
    return document


def _part_from_fields(fields: Fields) -> Part:
    part = Part(
        participant=fields.text("participant"),
        query=fields.text("query"),
        kind=fields.choice("kind", ParticipantKind),
        files=tuple(map(file_from_fields, fields.items("files"))),
        positions=fields.object("positions"),
        staged=fields.object("staged"),
    )
    fields.done()
    return part
