"""A checkpointLocation's logs and sources: exactly the files that a start after a batch needs."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.codec import Json
from airflow_provider_ckpt.protocol.errors import Corrupt, UnknownVersion
from airflow_provider_ckpt.protocol.records import ParticipantKind
from airflow_provider_ckpt.spark.streaming import logs
from airflow_provider_ckpt.spark.streaming.location import Location
from airflow_provider_ckpt.spark.streaming.logs import Vanished
from tests.unit.spark.locations import CONF, LocationOnDisk, log_of, seen, text_of

KAFKA = 'v1\n{"orders":{"0":0,"1":7}}'


@pytest.fixture
def location(tmp_path: Path) -> LocationOnDisk:
    return LocationOnDisk(tmp_path / "location")


# offsets and commits


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_start_after_a_batch_needs_its_commit_and_two_offsets_and_nothing_later(
    location: LocationOnDisk, version: str
) -> None:
    location.run(4, version=version)
    location.plan(5, {"logOffset": 5}, version=version)
    assert location.needs(3) == [
        "commits/3",
        "metadata",
        "offsets/2",
        "offsets/3",
        *(f"sources/0/{entry}" for entry in range(4)),
    ]


def test_after_the_first_batch_there_is_no_offset_before_it(location: LocationOnDisk) -> None:
    location.run(2)
    assert location.needs(0) == ["commits/0", "metadata", "offsets/0", "sources/0/0"]


def test_before_anything_is_committed_only_the_querys_id_is_needed(location: LocationOnDisk) -> None:
    location.see(0, ["a"])
    location.plan(0, {"logOffset": 0})
    location.describe_v2(0)
    assert location.needs(None) == ["metadata"]
    assert location.portions(None)["log"].positions == {"batch": None}


def test_a_location_in_which_nothing_has_happened_needs_nothing(tmp_path: Path) -> None:
    portions = Location(tmp_path / "not there").needs(None)
    assert [(portion.name, portion.pieces) for portion in portions] == [("log", ())]


def test_a_tip_takes_the_planned_batch_along_and_the_source_up_to_it(location: LocationOnDisk) -> None:
    location.run(3)
    for entry in (4, 5, 6):
        location.see(entry, [f"{entry}.json"])
    location.plan(4, {"logOffset": 5})
    entries = [f"sources/0/{entry}" for entry in range(6)]
    assert location.needs(3, planned=4) == ["commits/3", "metadata", "offsets/2", "offsets/3", "offsets/4", *entries]
    assert location.portions(3, planned=4)["source/0"].positions == {"offset": {"logOffset": 5}}


def test_a_tip_takes_the_very_first_batch_along(location: LocationOnDisk) -> None:
    location.see(0, ["a"])
    location.see(1, ["b"])
    location.plan(0, {"logOffset": 0})
    assert location.needs(None, planned=0) == ["metadata", "offsets/0", "sources/0/0"]


def test_the_newest_batches_are_told_from_the_logs(location: LocationOnDisk) -> None:
    empty = Location(location.root)
    assert (empty.committed, empty.planned, empty.commits) == (None, None, [])
    location.run(10)
    location.plan(11, {"logOffset": 11})
    location.write("commits/.11.3fd0.tmp", "v1")
    assert (empty.committed, empty.planned) == (10, 11)
    assert empty.commits == list(range(11))


def test_a_batch_whose_offsets_are_purged_has_vanished(location: LocationOnDisk) -> None:
    location.run(3)
    location.remove("offsets/2")
    with pytest.raises(Vanished, match=r"offsets/2 is gone"):
        location.needs(2)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_offsets_say_where_each_source_stands_and_what_spark_has_pinned(location: LocationOnDisk, version: str) -> None:
    location.plan(3, {"logOffset": 7}, {"orders": {"0": 12}}, None, version=version)
    offsets = Location(location.root).offsets(3)
    assert offsets.conf == CONF
    assert offsets.sources == {"0": {"logOffset": 7}, "1": {"orders": {"0": 12}}, "2": None}


def test_sources_of_the_second_version_go_by_their_names(location: LocationOnDisk) -> None:
    location.write("offsets/0", 'v2\n{"conf":{}}\norders:{"logOffset":0}\nclicks:-')
    location.commit(0)
    location.see(0, ["a"], source="orders")
    location.see(1, ["b"], source="orders")
    location.see(0, ["c"], source="clicks")
    assert location.needs_of("sources", 0) == ["orders/0"]
    assert location.portions(0)["source/clicks"].positions == {"offset": None}


def test_sources_with_names_whose_offsets_are_kept_by_position_go_by_the_order_of_the_plan(
    location: LocationOnDisk,
) -> None:
    """Their logs have the names: without the order nobody could tell which offset belongs to which log."""
    location.plan(0, {"logOffset": 1}, {"logOffset": 0})
    location.commit(0)
    for entry in range(3):
        location.see(entry, [f"{entry}.json"], source="orders")
        location.see(entry, [f"{entry}.json"], source="clicks")
    portions = Location(location.root).needs(0, names=("orders", "clicks"))
    kept = sorted(piece.name for portion in portions for piece in portion.pieces if piece.name.startswith("sources/"))
    assert kept == ["sources/clicks/0", "sources/orders/0", "sources/orders/1"]
    with pytest.raises(Corrupt, match=r"a source with the name clicks, .* Start the query by ckpt\.start"):
        Location(location.root).needs(0)


def test_log_and_sources_answer_for_themselves(location: LocationOnDisk) -> None:
    location.run(1)
    parts = location.portions(1)
    assert {name: part.kind for name, part in parts.items()} == {
        "log": ParticipantKind.LOG,
        "source/0": ParticipantKind.SOURCE,
    }
    assert parts["log"].positions == {"batch": 1}
    assert parts["source/0"].positions == {"offset": {"logOffset": 1}}


# versions and damage


@pytest.mark.parametrize(
    ("name", "version", "known"),
    [
        ("offsets/1", "v3", "v1, v2"),
        ("offsets/1", "v10", "v1, v2"),
        ("commits/1", "v4", "v1, v2, v3"),
    ],
)
def test_an_unknown_version_of_a_log_is_refused_by_name(
    location: LocationOnDisk, name: str, version: str, known: str
) -> None:
    location.run(1)
    location.describe(partitions=1)
    location.state("1.delta", "2.delta", partitions=1)
    location.write(name, f"{version}\n{{}}")
    with pytest.raises(
        UnknownVersion, match=rf"{name} is written in version '{version}'; known are {known}\. .*update"
    ):
        location.needs(1)


def test_an_unknown_version_of_a_source_log_is_refused_where_it_is_read(location: LocationOnDisk) -> None:
    location.run(1)
    location.write("sources/0/1", "v2\n{}")
    with pytest.raises(UnknownVersion, match=r"sources/0/1 is written in version 'v2'; known are v1\."):
        Location(location.root).seen("0", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v",
        "{}",
        "v1",
        "v1\n",
        'v1\n{"conf":',
        "v1\n[]",
        'v1\n{"conf":[]}',
        'v1\n{"conf":{}}\n{"logOffset":',
        'v2\n{"conf":{}}\nno name and no offset',
        'v2\n{"conf":{}}\n0:{',
    ],
)
def test_offsets_that_can_not_be_read_are_corrupt_and_named(location: LocationOnDisk, text: str) -> None:
    location.run(1)
    location.write("offsets/1", text)
    with pytest.raises(Corrupt, match=r"offsets/1") as refused:
        location.needs(1)
    assert not isinstance(refused.value, UnknownVersion)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1\n{",
        "v1\n[]",
        'v2\n{"stateUniqueIds":[1]}',
        'v2\n{"stateUniqueIds":{"0":{}}}',
        'v2\n{"stateUniqueIds":{"0":["a"]}}',
        'v2\n{"stateUniqueIds":{"0":[[1]]}}',
    ],
)
def test_a_commit_that_can_not_be_read_is_corrupt_and_named(location: LocationOnDisk, text: str) -> None:
    location.run(1)
    location.describe(partitions=1)
    location.state("1.delta", "2.delta", partitions=1)
    location.write("commits/1", text)
    with pytest.raises(Corrupt, match=r"commits/1"):
        location.needs(1)


def test_a_log_that_is_not_text_is_corrupt(location: LocationOnDisk) -> None:
    location.run(1)
    (location.root / "offsets/1").write_bytes(b"v1\n\xff\xfe")
    with pytest.raises(Corrupt, match=r"offsets/1 is not text"):
        location.needs(1)


def test_a_commit_without_state_ids_names_none(location: LocationOnDisk) -> None:
    location.commit(0)
    location.commit(1, ids={"0": [["a", "b"]]})
    assert logs.read_state_ids(location.root / "commits/0") == {}
    assert logs.read_state_ids(location.root / "commits/1") == {"0": [["a", "b"]]}


def test_a_commit_that_also_says_which_sink_it_was_names_its_state(location: LocationOnDisk) -> None:
    document: Json = {"stateUniqueIds": {"0": [["a"]]}, "sinkMetadataMap": {"s": {"sinkName": "s", "isActive": True}}}
    location.write("commits/0", f"v3\n{text_of(document)}")
    assert logs.read_state_ids(location.root / "commits/0") == {"0": [["a"]]}


# file sources


def _source(location: LocationOnDisk, upto: int) -> None:
    """Batch 7 has planned the source up to an entry of its own log, which is not the batch's number."""
    location.plan(6, {"logOffset": 0})
    location.plan(7, {"logOffset": upto})
    location.commit(7)


def test_a_file_sources_log_is_cut_at_its_own_offset(location: LocationOnDisk) -> None:
    for entry in range(6):
        location.see(entry, [f"{entry}.json"])
    _source(location, upto=3)
    assert location.needs_of("sources/0", 7) == ["0", "1", "2", "3"]


def test_a_cut_log_begins_at_the_newest_compacted_file_that_is_not_too_new(location: LocationOnDisk) -> None:
    everything = {entry: [f"{entry}.json"] for entry in range(40)}
    for entry, files in everything.items():
        location.see(entry, files)
    for entry in (9, 19, 29, 39):
        location.remove(f"sources/0/{entry}")
        location.compact(entry, {each: everything[each] for each in range(entry + 1)})
    _source(location, upto=22)
    assert location.needs_of("sources/0", 7) == ["19.compact", "20", "21", "22"]
    _source(location, upto=29)
    assert location.needs_of("sources/0", 7) == ["29.compact"]
    _source(location, upto=8)
    assert location.needs_of("sources/0", 7) == [str(entry) for entry in range(9)]


def test_what_a_source_had_seen_ends_at_the_cut(location: LocationOnDisk) -> None:
    location.compact(1, {0: ["a", "b"], 1: ["c"]})
    location.see(2, ["d"])
    location.see(3, ["e"])
    found = Location(location.root).seen("0", 2)
    assert found == {f"file:///in/{name}" for name in "abcd"}


def test_a_broken_line_in_a_source_log_is_corrupt_and_named(location: LocationOnDisk) -> None:
    location.write("sources/0/0", log_of([seen("a", 0), '{"path":']))
    with pytest.raises(Corrupt, match=r"sources/0/0 is not what Spark writes"):
        Location(location.root).seen("0", 0)
    location.write("sources/0/0", log_of([text_of({"batchId": 0})]))
    with pytest.raises(Corrupt, match=r"sources/0/0 lacks the field 'path'"):
        Location(location.root).seen("0", 0)


def test_a_missing_entry_has_vanished_when_no_newer_file_tells_it(location: LocationOnDisk) -> None:
    for entry in (0, 1, 3):
        location.see(entry, [f"{entry}.json"])
    _source(location, upto=3)
    with pytest.raises(Vanished, match=r"sources/0/2 is gone"):
        location.needs(7)


def test_when_the_older_files_are_gone_a_newer_compacted_one_tells_the_log_up_to_the_cut(
    location: LocationOnDisk,
) -> None:
    """Compaction also loses the order: a newer compacted file is filtered by what its entries say."""
    location.compact(9, {entry: [f"{entry}.json", f"{entry}.more"] for entry in reversed(range(10))})
    location.see(10, ["late"])
    _source(location, upto=6)
    (piece,) = location.portions(7)["source/0"].pieces
    assert piece.name == "sources/0/6.compact"
    assert piece.source == location.root / "sources/0/9.compact"
    assert piece.data is not None
    kept = {seen(f"{entry}.{kind}", entry) for entry in range(7) for kind in ("json", "more")}
    version, *lines = piece.data.decode().split("\n")
    assert version == "v1"
    assert len(lines) == len(kept)
    assert set(lines) == kept


def test_the_nearest_newer_compacted_file_is_taken(location: LocationOnDisk) -> None:
    for entry in (9, 19):
        location.compact(entry, {each: [f"{each}.json"] for each in range(entry + 1)})
    _source(location, upto=8)
    (piece,) = location.portions(7)["source/0"].pieces
    assert piece.source.name == "9.compact"


@settings(max_examples=100, deadline=None)
@given(upto=st.integers(0, 150), interval=st.integers(1, 40))
def test_spark_finds_a_log_that_was_made_up_whatever_its_compaction_interval_is_set_to(
    tmp_path_factory: pytest.TempPathFactory, upto: int, interval: int
) -> None:
    newer = tmp_path_factory.getbasetemp() / f"{upto + interval}.compact"
    newer.write_text(log_of([seen(f"{entry}.json", entry) for entry in range(upto + interval + 1)]))
    made = logs.split_compact(newer, upto)
    found: list[str] = []
    for name in _names_that_spark_reads(list(made), interval):
        found += made[name].decode().split("\n")[1:]
    assert found == [seen(f"{entry}.json", entry) for entry in range(upto + 1)]
    newer.unlink()


@settings(max_examples=60, deadline=None)
@given(
    set_to=st.integers(1, 30),
    lives=st.lists(st.tuples(st.integers(0, 70), st.booleans()), min_size=1, max_size=5),
)
@example(set_to=10, lives=[(25, True), (20, True), (10, True)])
@example(set_to=4, lives=[(8, True), (16, True), (5, True)])
def test_spark_goes_on_with_a_log_that_was_laid_out_again_and_again(
    tmp_path_factory: pytest.TempPathFactory, set_to: int, lives: list[tuple[int, bool]]
) -> None:
    """Whatever the interval is set to, and whether or not Spark has removed what it had compacted."""
    location = LocationOnDisk(tmp_path_factory.mktemp("settled"))
    folder = location.root / "sources/0"
    written = 0
    for more, is_tidy in lives:
        interval = _interval_that_spark_takes([each.name for each in logs.entries(folder)], set_to)
        for entry in range(written, written + more + 1):
            if (entry + 1) % interval == 0:
                location.compact(entry, {each: [f"{each}.json"] for each in range(entry + 1)})
            else:
                location.see(entry, [f"{entry}.json"])
        written += more + 1
        kept = logs.log_files(folder, written - 1)
        for each in logs.entries(folder):
            if is_tidy and each not in kept:
                (folder / each.name).unlink()
        logs.settle(folder)
        names = _names_that_spark_reads([each.name for each in logs.entries(folder)], set_to)
        found = [line for name in names for line in logs.log_lines(folder / name)]
        assert found == [seen(f"{entry}.json", entry) for entry in range(written)]


def _names_that_spark_reads(there: list[str], set_to: int) -> list[str]:
    """The files that Spark's CompactibleFileStreamLog opens in order to read a whole log."""
    newest = max(int(name.removesuffix(".compact")) for name in there)
    interval = _interval_that_spark_takes(there, set_to)
    first = max(0, (newest + 1) // interval * interval - 1)
    return [f"{n}.compact" if (n + 1) % interval == 0 else str(n) for n in range(first, newest + 1)]


def _interval_that_spark_takes(there: list[str], set_to: int) -> int:
    compacted = sorted(int(name.removesuffix(".compact")) for name in there if name.endswith(".compact"))
    match compacted:
        case []:
            return set_to
        case [only]:
            return _derived_interval(set_to, only)
        case [*_, before, last]:
            return last - before
    raise AssertionError


def _derived_interval(set_to: int, compacted: int) -> int:
    size = compacted + 1
    if size <= set_to or set_to >= size // 2:
        return size
    return next((n for n in range(set_to, size // 2 + 1) if size % n == 0), size)


# other sources


@pytest.mark.parametrize("first", [KAFKA, "\0v1\n{}", "v1\n1794813636452", '{"batchId":1}', 'v1\n{"batchId":{"0":1}}'])
def test_a_source_that_is_no_file_source_keeps_where_it_began(location: LocationOnDisk, first: str) -> None:
    location.write("sources/0/0", first)
    location.plan(0, {"orders": {"0": 12, "1": 9}})
    location.plan(1, 34)
    location.commit(1)
    assert location.needs_of("sources/0", 1) == ["0"]
    assert location.needs_of("sources/0", None) == ["0"]


def test_a_topic_that_is_named_like_a_field_of_sparks_is_no_file_source(location: LocationOnDisk) -> None:
    location.write("sources/0/0", 'v1\n{"path":{"0":1},"batchId":{"0":1},"logOffset":{"0":1}}')
    location.plan(0, {"logOffset": {"0": 12}, "path": {"0": 3}})
    location.commit(0)
    assert location.needs_of("sources/0", 0) == ["0"]


def test_whatever_an_unknown_source_keeps_is_kept(location: LocationOnDisk) -> None:
    for name in ("0", "1", "shards/3/a"):
        location.write(f"sources/0/{name}", "v1\nwhatever")
    location.write("sources/0/.2.tmp", "v1\nhalf")
    location.plan(0, {"shard": "a"})
    location.commit(0)
    assert location.needs_of("sources/0", 0) == ["0", "1", "shards/3/a"]


def test_a_file_source_without_an_offset_starts_from_nothing(location: LocationOnDisk) -> None:
    """Its log is written before the offsets: what is in it was not planned."""
    location.see(0, ["a"])
    location.write("sources/1/0", KAFKA)
    location.plan(0, None, {"orders": {"0": 12}})
    location.commit(0)
    assert location.needs_of("sources", 0) == ["1/0"]
    assert location.needs_of("sources", None) == ["1/0"]


def test_a_source_that_keeps_no_files_still_has_its_place(location: LocationOnDisk) -> None:
    location.plan(0, 12)
    location.commit(0)
    part = location.portions(0)["source/0"]
    assert part.pieces == ()
    assert part.positions == {"offset": 12}
