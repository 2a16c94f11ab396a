"""The manifest: its bytes are for ever, and nothing that is damaged or dangerous is believed."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.cut import Graph, InFlight, Query
from airflow_provider_ckpt.protocol.errors import CkptError, Corrupt, Misused, UnknownVersion, UnsafePath
from airflow_provider_ckpt.protocol.manifest import (
    Manifest,
    Part,
    decided_marker,
    digest,
    read_decided_marker,
    read_manifest,
)
from airflow_provider_ckpt.protocol.records import Consumed, Cut, FileRef, Kind, Member, ParticipantKind, Ref
from airflow_provider_ckpt.protocol.timeline import Segment, Timeline

quick = settings(max_examples=40, deadline=None)

GOLDEN = Path(__file__).parent / "golden"

CHECKPOINT = Manifest(
    ref=Ref("orders", 17),
    kind=Kind.CHECKPOINT,
    name=None,
    attempt=3,
    timeline=Timeline((Segment(attempt=3, upto=17), Segment(attempt=1, upto=12))),
    triggered_at=datetime(2026, 1, 1, 13, 0, 0, 250, tzinfo=timezone(timedelta(hours=1))),
    requested_by="orders__checkpoint/scheduled__2026-01-01",
    reason="every 5 minutes → täglich",
    graph=Graph(
        (
            Query(name="clean", reads=frozenset(), writes=frozenset({"cleaned"})),
            Query(name="totals", reads=frozenset({"cleaned"}), writes=frozenset()),
            Query(name="idle", reads=frozenset({"cleaned", "extra"}), writes=frozenset()),
        )
    ),
    cuts=(
        Cut(
            query="totals",
            batch=41,
            consumed=(Consumed(channel="cleaned", writer="clean", batch=88),),
            properties={"shuffle_partitions": 2, "providers": ["RocksDB"]},
        ),
        Cut(query="clean", batch=90),
        Cut(query="idle", batch=None),
    ),
    parts=(
        Part(
            participant="totals/sink",
            query="totals",
            kind=ParticipantKind.SINK,
            files=(),
            positions={},
            staged={"batches": [40, 41], "rows": 1204},
        ),
        Part(
            participant="totals/0/1",
            query="totals",
            kind=ParticipantKind.STATE,
            files=(
                FileRef(path="files/1/12/state/0/1/7.delta", name="state/0/1/7.delta", size=4096, sha256="ab" * 32),
                FileRef(path="files/3/17/state/0/1/41.delta", name="state/0/1/41.delta", size=0, sha256="0f" * 32),
            ),
            positions={"version": 41},
            staged={},
        ),
        Part(
            participant="clean/source",
            query="clean",
            kind=ParticipantKind.SOURCE,
            files=(),
            positions={"topic": {"0": 1500, "1": None}, "lag": 0.5},
            staged={},
        ),
    ),
)
SAVEPOINT = replace(
    CHECKPOINT,
    kind=Kind.SAVEPOINT,
    name="before-upgrade",
    timeline=Timeline((Segment(attempt=3, upto=None),)),
    triggered_at=datetime(2026, 1, 1, 12, tzinfo=UTC),
    requested_by="ada",
    reason="",
    graph=Graph((Query(name="totals"),)),
    cuts=(Cut(query="totals", batch=41),),
    parts=(
        Part(
            participant="totals/0/0",
            query="totals",
            kind=ParticipantKind.STATE,
            files=(FileRef(path="files/0", name="state/0/0/41.zip", size=10, sha256="c4" * 32),),
            positions={},
            staged={},
        ),
    ),
)
PACK = FileRef(path="files/3/17/packs/totals/0/1.0", name="packs/totals/0/1.0", size=100, sha256="a9" * 32)
DELTAS = tuple(Member(name=f"state/0/1/{40 + n}.delta", offset=n * 30, size=30) for n in range(2))
OFFSETS = Member(name="offsets/41", offset=60, size=40)
_sink, _state, _source = CHECKPOINT.parts
WITH_PACK = replace(
    CHECKPOINT,
    parts=(
        _sink,
        replace(_state, files=(_state.files[0], replace(PACK, members=DELTAS))),
        replace(_source, files=(replace(PACK, members=(OFFSETS,)),)),
    ),
)
GOLDEN_WITH_PACK = (GOLDEN / "manifest-v2-packs.json").read_bytes()
GOLDEN_CHECKPOINT = (GOLDEN / "manifest-v1-checkpoint.json").read_bytes()
GOLDEN_SAVEPOINT = (GOLDEN / "manifest-v1-savepoint.json").read_bytes()
GOLDEN_DECIDED = (GOLDEN / "decided-v1.json").read_bytes()

FREE = ("properties", "positions", "staged")  # objects whose content is their owner's business
Where: TypeAlias = tuple[str | int, ...]


def _document() -> Any:
    return json.loads(GOLDEN_CHECKPOINT)


def _read(document: Any) -> Manifest:
    return read_manifest("orders/17", json.dumps(document).encode())


def _changed(where: Where, value: Any) -> Any:
    """The golden document with another value at one place."""
    document = _document()
    *path, last = where
    reduce(getitem, path, document)[last] = value
    return document


def _places(value: Any, here: Where = ()) -> Iterator[tuple[Where, Any]]:
    """Every place that the format knows, with what is there."""
    yield here, value
    inside: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict) and not _is_free(here):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    for step, inner in inside:
        yield from _places(inner, (*here, step))


def _is_free(where: Where) -> bool:
    return where[-1:] in [(name,) for name in FREE]


def _written(where: Where) -> str:
    return ".".join(map(str, where)) or "top"


PLACES = {where: value for where, value in _places(_document()) if where}
FIELDS = [where for where in PLACES if isinstance(where[-1], str)]
OBJECTS = [where for where, value in _places(_document()) if isinstance(value, dict) and not _is_free(where)]


# the bytes


@pytest.mark.parametrize("data", [GOLDEN_CHECKPOINT, GOLDEN_SAVEPOINT], ids=["checkpoint", "savepoint"])
def test_a_golden_manifest_is_read_and_written_again_to_the_byte(data: bytes) -> None:
    assert read_manifest("golden", data).to_bytes() == data


@pytest.mark.parametrize(
    ("built", "data"), [(CHECKPOINT, GOLDEN_CHECKPOINT), (SAVEPOINT, GOLDEN_SAVEPOINT)], ids=["checkpoint", "savepoint"]
)
def test_a_manifest_built_in_code_has_the_golden_bytes(built: Manifest, data: bytes) -> None:
    assert built.to_bytes() == data
    assert read_manifest("golden", data) == _sorted(built)


def test_the_golden_marker_names_the_golden_manifest() -> None:
    assert read_decided_marker("golden", GOLDEN_DECIDED) == digest(GOLDEN_CHECKPOINT)
    assert decided_marker(digest(GOLDEN_CHECKPOINT)) == GOLDEN_DECIDED


@quick
@given(st.permutations(CHECKPOINT.cuts), st.permutations(CHECKPOINT.parts))
def test_the_order_of_cuts_and_parts_does_not_change_the_bytes(cuts: list[Cut], parts: list[Part]) -> None:
    assert replace(CHECKPOINT, cuts=tuple(cuts), parts=tuple(parts)).to_bytes() == GOLDEN_CHECKPOINT


def test_the_zone_in_which_a_time_was_told_does_not_change_the_bytes() -> None:
    in_utc = replace(CHECKPOINT, triggered_at=CHECKPOINT.triggered_at.astimezone(UTC))
    assert in_utc.to_bytes() == GOLDEN_CHECKPOINT


def _sorted(manifest: Manifest) -> Manifest:
    cuts = sorted(manifest.cuts, key=lambda cut: cut.query)
    parts = sorted(manifest.parts, key=lambda part: part.participant)
    return replace(manifest, cuts=tuple(cuts), parts=tuple(parts))


texts = st.text(max_size=8)
wholes = st.integers(0, 2**60)
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
objects = st.dictionaries(texts, values | st.lists(values, max_size=2), max_size=2)
files = st.builds(
    FileRef,
    path=wholes.map(lambda number: f"files/{number}"),
    name=st.sampled_from(["a", "state/0/1", "ä b/c"]),
    size=st.just(7),
    sha256=st.just("5e" * 32),
)
parts_ = st.builds(
    Part,
    participant=wholes.map(lambda number: f"totals/ä/{number}"),
    query=st.sampled_from(["totals", "clean"]),
    kind=st.sampled_from(ParticipantKind),
    files=st.lists(files, max_size=2).map(tuple),
    positions=objects,
    staged=objects,
)
consumed_ = st.builds(Consumed, channel=texts, writer=texts, batch=wholes)
cuts_ = st.builds(
    Cut, query=texts, batch=st.none() | wholes, consumed=st.lists(consumed_, max_size=2).map(tuple), properties=objects
)
manifests = st.builds(
    Manifest,
    ref=st.builds(Ref, st.sampled_from(["orders", "a.b-c_9"]), wholes),
    kind=st.just(Kind.SAVEPOINT),
    name=st.sampled_from(["mine", "before-1.2"]),
    attempt=wholes,
    timeline=st.lists(st.builds(Segment, attempt=wholes, upto=st.none() | wholes), max_size=3).map(
        lambda segments: Timeline(tuple(segments))
    ),
    triggered_at=st.datetimes(timezones=st.just(UTC)),
    requested_by=texts,
    reason=texts,
    graph=st.sampled_from([CHECKPOINT.graph, SAVEPOINT.graph]),
    cuts=st.lists(cuts_, max_size=3, unique_by=lambda cut: cut.query).map(tuple),
    parts=st.lists(parts_, max_size=3, unique_by=lambda part: part.participant).map(tuple),
)


@quick
@given(manifests)
def test_whatever_is_written_reads_back_the_same(manifest: Manifest) -> None:
    assert read_manifest("it", manifest.to_bytes()) == _sorted(manifest)


# what it says


def test_the_paths_of_a_checkpoint_begin_at_the_pipelines_folder() -> None:
    assert (CHECKPOINT.home, CHECKPOINT.base) == ("orders/checkpoints/17", "orders")
    file = CHECKPOINT.files["files/1/12/state/0/1/7.delta"]
    assert CHECKPOINT.located(file) == "orders/files/1/12/state/0/1/7.delta"


def test_the_paths_of_a_savepoint_begin_at_its_own_folder_so_that_it_can_be_moved() -> None:
    assert SAVEPOINT.home == SAVEPOINT.base == "orders/savepoints/before-upgrade.17"
    assert SAVEPOINT.located(SAVEPOINT.files["files/0"]) == "orders/savepoints/before-upgrade.17/files/0"


def test_a_manifest_knows_its_files_its_sinks_and_what_is_in_flight() -> None:
    assert sorted(CHECKPOINT.files) == ["files/1/12/state/0/1/7.delta", "files/3/17/state/0/1/41.delta"]
    assert [part.participant for part in CHECKPOINT.sinks] == ["totals/sink"]
    assert CHECKPOINT.in_flight == (InFlight(channel="cleaned", writer="clean", reader="totals", after=88, upto=90),)


# versions and formats


@pytest.mark.parametrize("version", [3, 17])
def test_a_newer_version_is_refused_by_name_and_the_error_says_what_to_do(version: int) -> None:
    with pytest.raises(UnknownVersion) as refused:
        _read(_changed(("version",), version))
    assert str(refused.value) == (
        f"orders/17 has manifest version {version}; this package reads versions 1 and 2. "
        "Use the version of airflow-provider-ckpt that wrote it, or a newer one."
    )


def test_a_newer_version_is_refused_before_its_new_fields_are() -> None:
    document = _changed(("version",), 3) | {"colour": "red"}
    del document["cuts"]
    with pytest.raises(UnknownVersion):
        _read(document)


def test_a_manifest_with_packs_has_a_version_of_its_own_and_one_without_has_not() -> None:
    assert WITH_PACK.to_bytes() == GOLDEN_WITH_PACK
    assert read_manifest("orders/17", GOLDEN_WITH_PACK) == _sorted(WITH_PACK)
    assert b'"version":2' in GOLDEN_WITH_PACK
    assert b'"version":1' in CHECKPOINT.to_bytes()


@pytest.mark.parametrize(
    ("member", "error", "text"),
    [
        (["../../etc/passwd", 0, 1], UnsafePath, "never leaves its root"),
        (["/etc/passwd", 0, 1], UnsafePath, "never leaves its root"),
        (["state/1", 90, 11], Corrupt, "can not hold state/1: it would end after it"),
        (["state/1", -1, 1], Corrupt, "can not have 1 bytes from -1 on"),
        (["state/1", 0, -1], Corrupt, "can not have -1 bytes"),
        (["state/1", 0, 1, "red"], Corrupt, "where a name, an offset and a size belong"),
        (["state/1", False, True], Corrupt, "where a name, an offset and a size belong"),
        (["state/1", 0], Corrupt, "where a name, an offset and a size belong"),
        ({"name": "state/1", "offset": 0, "size": 1}, Corrupt, "where a name, an offset and a size belong"),
        ("state/1", Corrupt, "where a name, an offset and a size belong"),
    ],
)
def test_a_pack_that_says_what_can_not_be_is_refused(member: Any, error: type[Exception], text: str) -> None:
    document = json.loads(GOLDEN_WITH_PACK)
    packed = next(file for part in document["parts"] for file in part["files"] if "members" in file)
    packed["members"].append(member)
    with pytest.raises(error, match=text):
        _read(document)


def test_what_is_a_pack_for_one_part_is_no_plain_file_for_another() -> None:
    """Else its members would not be laid out, and nobody would notice."""
    document = json.loads(GOLDEN_WITH_PACK)
    packed = next(file for part in document["parts"] for file in part["files"] if "members" in file)
    del packed["members"]
    with pytest.raises(Corrupt, match="twice, with different content"):
        _read(document)


def test_a_pack_is_named_once_with_all_that_is_needed_of_it() -> None:
    """Two parts need different members of it; for verifying and cleaning up it is one file."""
    (pack,) = (file for file in WITH_PACK.laid_out if file.members)
    assert pack.names == ("state/0/1/40.delta", "state/0/1/41.delta", "offsets/41")
    assert WITH_PACK.files[pack.path].size == 100


def test_what_two_parts_have_stored_each_is_laid_out_once() -> None:
    """Neither pack may be taken for a plain file when nothing of it is left."""
    other = replace(PACK, path="files/3/17/packs/totals/0/2.0", sha256="b9" * 32)
    first, second = (replace(_state, participant=name) for name in ("totals/0/1", "totals/0/2"))
    parts = (
        replace(first, files=(replace(PACK, members=DELTAS),)),
        replace(second, files=(replace(other, members=DELTAS[:1]), _state.files[0])),
    )
    names = [file.names for file in replace(CHECKPOINT, parts=parts).laid_out]
    assert names == [("state/0/1/40.delta", "state/0/1/41.delta"), ("state/0/1/7.delta",)]
    parts = (parts[0], replace(second, files=(replace(other, members=(DELTAS[0], OFFSETS)),)))
    names = [file.names for file in replace(CHECKPOINT, parts=parts).laid_out]
    assert names == [("state/0/1/40.delta", "state/0/1/41.delta"), ("offsets/41",)]


def test_another_format_is_no_manifest() -> None:
    with pytest.raises(Corrupt, match="orders/17 is no manifest: its format is 'a shopping list'"):
        _read(_changed(("format",), "a shopping list"))


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"not json", GOLDEN_CHECKPOINT[:-10], b"[" * 100_000])
def test_what_is_not_json_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="orders/17 is not JSON"):
        read_manifest("orders/17", data)


# fields


@pytest.mark.parametrize("where", FIELDS, ids=_written)
def test_a_field_that_is_missing_is_named(where: Where) -> None:
    document = _document()
    *path, last = where
    del reduce(getitem, path, document)[last]
    with pytest.raises(Corrupt, match=f"lacks the field '{last}'"):
        _read(document)


@pytest.mark.parametrize("where", OBJECTS, ids=_written)
def test_a_field_that_nobody_knows_is_refused_wherever_it_is(where: Where) -> None:
    with pytest.raises(Corrupt, match="unknown fields: colour"):
        _read(_changed((*where, "colour"), "red") if where else _document() | {"colour": "red"})


@pytest.mark.parametrize("where", PLACES, ids=_written)
def test_a_value_of_another_type_is_refused_wherever_it_is(where: Where) -> None:
    wrong: Any = [] if isinstance(PLACES[where], dict) else {}
    with pytest.raises(Corrupt):
        _read(_changed(where, wrong))


@pytest.mark.parametrize("number", [True, -1, 1.0, "1", None])
@pytest.mark.parametrize("where", [("checkpoint",), ("attempt",), ("parts", 1, "files", 0, "size")], ids=_written)
def test_a_number_is_whole_and_not_negative(where: Where, number: Any) -> None:
    with pytest.raises(Corrupt, match=f"'{where[-1]}' should be a whole number from 0"):
        _read(_changed(where, number))


@pytest.mark.parametrize("segment", [[], [1], [1, 2, 3], ["1", None], [1, "2"], [None, 1], [1.0, None], "12", 1, None])
def test_a_timeline_is_made_of_attempts_and_ids(segment: Any) -> None:
    with pytest.raises(Corrupt, match="where an attempt and an id belong"):
        _read(_changed(("timeline", 0), segment))


@pytest.mark.parametrize("segment", [[True, None], [1, False], [-1, None], [1, -5]], ids=str)
def test_a_timeline_is_made_of_whole_numbers(segment: Any) -> None:
    with pytest.raises(Corrupt):
        _read(_changed(("timeline", 0), segment))


@pytest.mark.parametrize("kind", ["Checkpoint", "backup", ""])
def test_an_unknown_kind_is_refused_and_the_known_are_named(kind: str) -> None:
    with pytest.raises(Corrupt, match="'kind' should be one of checkpoint, savepoint"):
        _read(_changed(("kind",), kind))


@pytest.mark.parametrize("time", ["", "yesterday", "2026-01-01T12:00:00", "2026-02-30T12:00:00Z"])
def test_a_time_has_a_date_that_exists_and_a_zone(time: str) -> None:
    with pytest.raises(Corrupt, match="'triggered_at' should be"):
        _read(_changed(("triggered_at",), time))


# files


@pytest.mark.parametrize("sha256", ["", "ab", "AB" * 32, "g" * 64, "ab" * 33, "ab" * 32 + "\n"])
def test_a_checksum_is_a_sha256(sha256: str) -> None:
    with pytest.raises(Corrupt, match="has no SHA-256"):
        _read(_changed(("parts", 1, "files", 0, "sha256"), sha256))


def test_a_file_with_less_than_nothing_in_it_can_not_even_be_built() -> None:
    with pytest.raises(Corrupt, match="can not have -1 bytes"):
        FileRef(path="a", name="a", size=-1, sha256="ab" * 32)


@pytest.mark.parametrize("field", ["path", "name"])
@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/passwd", "a//b", "a\\b", "", ".", "..", "a/../../x", "a/./b", "a/", "a\x00b", "a\nb", "x" * 1001],
)
def test_a_path_that_would_leave_its_root_is_refused(path: str, field: str) -> None:
    with pytest.raises(UnsafePath, match="never leaves its root"):
        _read(_changed(("parts", 1, "files", 0, field), path))


@pytest.mark.parametrize(("field", "value"), [("size", 4097), ("sha256", "cd" * 32)])
def test_one_path_can_not_have_two_contents(field: str, value: Any) -> None:
    document = _document()
    twin = {**document["parts"][1]["files"][0], field: value}
    document["parts"][0]["files"].append(twin)
    with pytest.raises(Corrupt, match=r"names files/1/12/state/0/1/7\.delta twice, with different content"):
        _read(document)


def test_one_content_may_have_two_names() -> None:
    document = _document()
    twin = {**document["parts"][1]["files"][0], "name": "another/name"}
    document["parts"][0]["files"].append(twin)
    assert len(_read(document).files) == 2


# names


@pytest.mark.parametrize("name", ["../orders", "a/b", "", ".", "a b", "x" * 101])
def test_a_pipeline_that_could_not_exist_is_damage_and_not_misuse(name: str) -> None:
    with pytest.raises(Corrupt, match=r"^orders/17: .* can not name a pipeline") as refused:
        _read(_changed(("pipeline",), name))
    assert not isinstance(refused.value, Misused)


@pytest.mark.parametrize("name", ["../mine", "a/b", "", "..", "17"])
def test_a_savepoint_that_could_not_exist_is_damage_and_not_misuse(name: str) -> None:
    with pytest.raises(Corrupt, match=r"^orders/17: .* can not name a savepoint"):
        _read(_changed(("kind",), "savepoint") | {"name": name})


def test_queries_that_could_not_run_are_damage_and_not_misuse() -> None:
    with pytest.raises(Corrupt, match=r"^orders/17: .*distinct names"):
        _read(_changed(("queries", 1, "name"), "clean"))
    with pytest.raises(Corrupt, match=r"^orders/17: The queries form a cycle"):
        _read(_changed(("queries", 0, "reads"), ["cleaned"]))


@pytest.mark.parametrize(("kind", "name"), [("checkpoint", "mine"), ("savepoint", None)])
def test_a_savepoint_has_a_name_and_a_checkpoint_has_none(kind: str, name: str | None) -> None:
    with pytest.raises(Corrupt):
        _read(_document() | {"kind": kind, "name": name})


@pytest.mark.parametrize("field", ["cuts", "parts"])
def test_nobody_is_in_a_manifest_twice(field: str) -> None:
    document = _document()
    document[field].append(document[field][0])
    with pytest.raises(Corrupt):
        _read(document)


# damage


def _check_that_only_ours_are_raised(data: bytes) -> None:
    """What is read from damaged bytes is a manifest that can be written and read, or one of our errors."""
    with suppress(CkptError):
        manifest = read_manifest("damaged", data)
        assert read_manifest("again", manifest.to_bytes()) == _sorted(manifest)


def test_any_flipped_bit_gives_a_manifest_or_one_of_our_errors() -> None:
    for place in range(len(GOLDEN_CHECKPOINT)):
        for bit in (1, 4, 32, 128):
            data = bytearray(GOLDEN_CHECKPOINT)
            data[place] ^= bit
            _check_that_only_ours_are_raised(bytes(data))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOLDEN_CHECKPOINT) - 1), st.binary(max_size=3)), min_size=1, max_size=4))
def test_any_damage_gives_a_manifest_or_one_of_our_errors(damage: list[tuple[int, bytes]]) -> None:
    data = GOLDEN_CHECKPOINT
    for place, instead in damage:
        data = data[:place] + instead + data[place + max(1, len(instead)) :]
    _check_that_only_ours_are_raised(data)


@quick
@given(st.sampled_from(sorted(PLACES, key=str)), values | st.lists(values, max_size=2) | objects)
def test_any_value_anywhere_gives_a_manifest_or_one_of_our_errors(where: Where, value: Any) -> None:
    _check_that_only_ours_are_raised(json.dumps(_changed(where, value)).encode())


def test_damage_never_passes_the_digest() -> None:
    for place in range(0, len(GOLDEN_CHECKPOINT), 50):
        data = GOLDEN_CHECKPOINT[:place] + b"~" + GOLDEN_CHECKPOINT[place + 1 :]
        assert digest(data) != read_decided_marker("golden", GOLDEN_DECIDED)


# the marker beside it


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"manifest_sha256":1}', b'{"manifest_sha256":"ab","x":1}', GOLDEN_DECIDED[:-3]]
)
def test_a_damaged_marker_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="the marker"):
        read_decided_marker("the marker", data)


@pytest.mark.parametrize("sha256", ["", "ab", "AB" * 32])
def test_a_marker_without_a_sha256_is_corrupt(sha256: str) -> None:
    with pytest.raises(Corrupt):
        read_decided_marker("the marker", decided_marker(sha256))
