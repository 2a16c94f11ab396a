"""The state of a query: exactly the files that version N+1 of every store is loaded from."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.protocol.errors import Corrupt, UnknownVersion
from airflow_provider_ckpt.protocol.records import ParticipantKind
from airflow_provider_ckpt.spark.streaming import state
from airflow_provider_ckpt.spark.streaming.identity import Identity, identify
from airflow_provider_ckpt.spark.streaming.logs import Vanished
from tests.unit.spark.locations import JOIN_STORES, LocationOnDisk, unique

quick = settings(max_examples=100, deadline=None)


@pytest.fixture
def location(tmp_path: Path) -> LocationOnDisk:
    """Batches 0 to 5 are committed; the state is left to the test."""
    made = LocationOnDisk(tmp_path / "location")
    made.run(5)
    return made


def _in_both(*names: str) -> list[str]:
    return sorted(f"{partition}/{name}" for partition in (0, 1) for name in names)


# HDFS-backed


def test_without_a_snapshot_every_delta_is_needed_up_to_the_version_after_the_batch(location: LocationOnDisk) -> None:
    location.describe()
    location.state(*(f"{version}.delta" for version in range(1, 7)))
    assert location.needs_of("state/0", 2) == _in_both("1.delta", "2.delta", "3.delta")


def test_the_chain_of_deltas_ends_at_the_newest_snapshot_that_is_not_too_new(location: LocationOnDisk) -> None:
    location.describe()
    location.state(*(f"{version}.delta" for version in range(1, 7)), "1.snapshot", "3.snapshot", "6.snapshot")
    assert location.needs_of("state/0", 4) == _in_both("3.snapshot", "4.delta", "5.delta")


def test_a_snapshot_of_the_very_version_is_enough(location: LocationOnDisk) -> None:
    location.describe()
    location.state("4.delta", "5.delta", "5.snapshot")
    assert location.needs_of("state/0", 4) == _in_both("5.snapshot")


def test_half_written_files_are_not_looked_at(location: LocationOnDisk) -> None:
    location.describe()
    location.state("1.delta", ".1.snapshot.3a2c.tmp", "1.snapshot.tmp", "x1.snapshot")
    assert location.needs_of("state/0", 0) == _in_both("1.delta")


def test_a_missing_delta_has_vanished_and_is_named(location: LocationOnDisk) -> None:
    location.describe()
    location.state("1.snapshot", "2.delta", "4.delta")
    with pytest.raises(Vanished, match=r"state/0/0/3 is gone"):
        location.needs(3)


def test_each_partition_answers_for_its_own_files_and_version(location: LocationOnDisk) -> None:
    location.describe()
    location.state("1.delta", "2.delta")
    parts = location.portions(1)
    assert [name for name in parts if name.startswith("state/")] == ["state/0/0", "state/0/1"]
    second = parts["state/0/1"]
    assert second.kind is ParticipantKind.STATE
    assert second.positions == {"version": 2}
    assert [piece.name for piece in second.pieces] == ["state/0/1/2.delta", "state/0/1/1.delta"]
    assert all(piece.source == location.root / piece.name and piece.data is None for piece in second.pieces)


@quick
@given(
    snapshots=st.sets(st.integers(1, 12)),
    deltas=st.sets(st.integers(1, 12), min_size=6),
    version=st.integers(0, 12),
)
def test_a_chain_is_contiguous_from_the_version_down_to_a_snapshot_or_to_the_first(
    tmp_path_factory: pytest.TempPathFactory, snapshots: set[int], deltas: set[int], version: int
) -> None:
    store = tmp_path_factory.mktemp("store")
    files = {f"{n}.snapshot" for n in snapshots} | {f"{n}.delta" for n in deltas}
    for name in files:
        (store / name).touch()
    base = max((n for n in snapshots if n <= version), default=0)
    is_whole = set(range(base + 1, version + 1)) <= deltas
    try:
        chain = [file.path.name for file in state.chain(store, version, lambda _: ())]
    except Vanished:
        assert not is_whole
    else:
        assert is_whole
        assert chain == [*(f"{n}.delta" for n in range(version, base, -1)), *([f"{base}.snapshot"] if base else [])]
    shutil.rmtree(store)


def test_an_operator_without_a_key_has_one_partition_whatever_it_says(location: LocationOnDisk) -> None:
    """`groupBy().agg(…)`, and `limit`."""
    location.describe(partitions=200, keys=())
    location.describe(partitions=200, operator=1, kind="globalLimit")
    for operator in (0, 1):
        location.state("6.snapshot", partitions=1, operator=operator)
    parts = [name for name in location.portions(5) if name.startswith("state/")]
    assert parts == ["state/0/0", "state/1/0"]


def test_a_partition_of_which_nothing_is_left_is_missed(location: LocationOnDisk) -> None:
    """Also where only the first one of several is left: it is no operator without a key."""
    location.describe(partitions=2)
    location.state("6.snapshot", partitions=1)
    with pytest.raises(Vanished, match=r"state/0/1/6 is gone"):
        location.needs(5)


# RocksDB


def test_a_snapshot_that_is_replaced_while_it_is_read_has_vanished(
    location: LocationOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    location.describe(partitions=1)
    location.rocks("0/0", "6", ["000008-a.sst"])

    def replaced_after(file: Path | int) -> Identity:
        found = identify(file)
        if isinstance(file, Path):
            location.remove("state/0/0/6.zip")
            location.rocks("0/0", "6", ["000009-b.sst"])
        return found

    monkeypatch.setattr(state, "identify", replaced_after)
    with pytest.raises(Vanished, match="was replaced"):
        location.needs(5)


def test_a_snapshot_of_rocksdb_comes_with_the_tables_that_it_names_and_no_others(location: LocationOnDisk) -> None:
    location.describe(partitions=1)
    location.rocks("0/0", "4", ["000008-a.sst", "000009-b.sst"])
    location.rocks("0/0", "5", ["000009-b.sst", "000010-c.sst"], logs=["000011-d.log"])
    location.rocks("0/0", "6", ["000012-e.sst"])
    needed = ["0/5.zip", "0/SSTs/000009-b.sst", "0/SSTs/000010-c.sst", "0/logs/000011-d.log"]
    assert location.needs_of("state/0", 4) == needed


def test_an_older_snapshot_of_rocksdb_does_not_stand_in_for_a_missing_one(location: LocationOnDisk) -> None:
    location.describe(partitions=1)
    location.rocks("0/0", "4", ["000008-a.sst"])
    with pytest.raises(Vanished, match=r"state/0/0/5 is gone"):
        location.needs(4)


def test_changelogs_are_needed_down_to_the_newest_snapshot(location: LocationOnDisk) -> None:
    location.describe(partitions=1)
    location.state(*(f"{version}.changelog" for version in range(1, 7)), partitions=1)
    location.rocks("0/0", "1", ["000007-z.sst"])
    location.rocks("0/0", "3", ["000008-a.sst"])
    location.rocks("0/0", "6", ["000009-b.sst"])
    needed = ["0/3.zip", "0/4.changelog", "0/5.changelog", "0/SSTs/000008-a.sst"]
    assert location.needs_of("state/0", 4) == needed


def test_a_missing_changelog_has_vanished(location: LocationOnDisk) -> None:
    location.describe(partitions=1)
    location.state("4.changelog", partitions=1)
    location.rocks("0/0", "2", [])
    with pytest.raises(Vanished, match=r"state/0/0/3 is gone"):
        location.needs(3)


def test_a_table_that_is_named_and_gone_is_still_asked_for(location: LocationOnDisk) -> None:
    """Whoever takes the files notices: to look for each table twice would cost more than it saves."""
    location.describe(partitions=1)
    location.rocks("0/0", "5", ["000008-a.sst"])
    location.remove("state/0/0/SSTs/000008-a.sst")
    assert location.needs_of("state/0", 4) == ["0/5.zip", "0/SSTs/000008-a.sst"]


def test_a_snapshot_that_was_written_again_is_read_again(location: LocationOnDisk) -> None:
    location.describe(partitions=1)
    location.rocks("0/0", "5", ["000008-a.sst"])
    assert location.needs_of("state/0", 4) == ["0/5.zip", "0/SSTs/000008-a.sst"]
    location.remove("state/0/0/5.zip")
    location.rocks("0/0", "5", ["000008-retried.sst"])
    assert location.needs_of("state/0", 4) == ["0/5.zip", "0/SSTs/000008-retried.sst"]


@pytest.mark.parametrize(
    "metadata",
    ['v1\n{"sstFiles":', "v1", "v1\n[]", 'v1\n{"sstFiles":[{"localFileName":"1.sst"}]}', 'v1\n{"sstFiles":[1]}'],
)
def test_a_snapshot_whose_metadata_can_not_be_read_is_corrupt_and_named(
    location: LocationOnDisk, metadata: str
) -> None:
    location.describe(partitions=1)
    location.zip("state/0/0/5.zip", {"metadata": metadata})
    with pytest.raises(Corrupt, match=r"state/0/0/5\.zip") as refused:
        location.needs(4)
    assert not isinstance(refused.value, UnknownVersion)


def test_a_snapshot_that_is_no_zip_or_has_no_metadata_is_corrupt_and_named(location: LocationOnDisk) -> None:
    location.describe(partitions=1)
    location.write("state/0/0/5.zip", "half of a z")
    with pytest.raises(Corrupt, match=r"state/0/0/5\.zip is no snapshot of RocksDB"):
        location.needs(4)
    location.zip("state/0/0/5.zip", {"CURRENT": "MANIFEST-5"})
    with pytest.raises(Corrupt, match=r"state/0/0/5\.zip is no snapshot of RocksDB"):
        location.needs(4)


def test_damaged_bytes_inside_of_a_snapshot_are_corrupt(location: LocationOnDisk) -> None:
    location.describe(partitions=1)
    location.rocks("0/0", "5", ["000008-a.sst"])
    file = location.root / "state/0/0/5.zip"
    file.write_bytes(file.read_bytes().replace(b"dfsSstFileName", b"dfsSstFileNome"))
    with pytest.raises(Corrupt, match=r"state/0/0/5\.zip is no snapshot of RocksDB"):
        location.needs(4)


@pytest.mark.parametrize("metadata", ['v2\n{"sstFiles":[]}', "v2\nin a shape that nobody knows"])
def test_an_unknown_version_of_a_snapshots_metadata_is_refused_by_name(location: LocationOnDisk, metadata: str) -> None:
    location.describe(partitions=1)
    location.zip("state/0/0/5.zip", {"metadata": metadata})
    with pytest.raises(UnknownVersion, match=r"state/0/0/5\.zip .*'v2'"):
        location.needs(4)


# format 2: unique ids


def _id(batch: int, partition: int, store: str = "default") -> str:
    """The id of the state that a batch left."""
    return unique("b", batch, "p", partition, store[:12])


def _commit_ids(location: LocationOnDisk, last: int, stores: tuple[str, ...] = ("default",)) -> None:
    for batch in range(last + 1):
        location.commit(batch, ids={"0": [[_id(batch, part, store) for store in stores] for part in (0, 1)]})


def _changelogs(location: LocationOnDisk, last: int, stores: tuple[str, ...] = ("default",)) -> None:
    for batch in range(last + 1):
        for part in (0, 1):
            for store in stores:
                inner = "" if store == "default" else f"{store}/"
                name = f"state/0/{part}/{inner}{batch + 1}_{_id(batch, part, store)}.changelog"
                location.write(name, "lineage")
                location.write(f"{name}.crc", '{"algorithm":"CRC32C","value":1}')


def test_in_format_2_only_the_committed_ids_are_needed(location: LocationOnDisk) -> None:
    location.describe()
    _commit_ids(location, 5)
    _changelogs(location, 5)
    for version in (1, 3, 4):
        location.write(f"state/0/0/{version}_{unique('dropped', version)}.changelog", "of a task that was tried again")
    location.write(f"state/0/0/3_{unique('dropped', 3)}.zip", "would be no snapshot at all")
    expected = [f"{part}/{batch + 1}_{_id(batch, part)}.changelog" for part in (0, 1) for batch in (0, 1, 2)]
    assert location.needs_of("state/0", 2) == expected


def test_in_format_2_the_chain_ends_at_a_snapshot_of_a_committed_id(location: LocationOnDisk) -> None:
    location.describe(partitions=1)
    _commit_ids(location, 5)
    _changelogs(location, 5)
    location.rocks("0/0", f"2_{_id(1, 0)}", ["000008-a.sst"])
    location.rocks("0/0", f"3_{unique('dropped')}", ["000009-b.sst"])
    expected = [f"0/2_{_id(1, 0)}.zip", f"0/3_{_id(2, 0)}.changelog", f"0/4_{_id(3, 0)}.changelog"]
    assert location.needs_of("state/0", 3) == [*expected, "0/SSTs/000008-a.sst"]


def test_in_format_2_a_version_that_only_has_other_ids_has_vanished(location: LocationOnDisk) -> None:
    location.describe()
    _commit_ids(location, 5)
    _changelogs(location, 5)
    location.remove(f"state/0/1/3_{_id(2, 1)}.changelog")
    location.write(f"state/0/1/3_{unique('dropped')}.changelog", "of a task that was tried again")
    with pytest.raises(Vanished, match=r"state/0/1/3 is gone"):
        location.needs(3)


def test_when_old_commits_are_purged_their_state_is_still_found(location: LocationOnDisk) -> None:
    """Spark purges commits after a hundred batches, and a location that was laid out anew begins with one."""
    location.describe()
    _commit_ids(location, 5)
    _changelogs(location, 5)
    location.remove("commits/0", "commits/1", "commits/2")
    expected = [f"{part}/{batch + 1}_{_id(batch, part)}.changelog" for part in (0, 1) for batch in range(5)]
    assert location.needs_of("state/0", 4) == expected


def test_when_it_is_not_known_which_id_was_committed_all_are_kept(location: LocationOnDisk) -> None:
    """Spark finds its own by the lineage in the newer changelogs: one too many does no harm, one too few does."""
    location.describe(partitions=1)
    _commit_ids(location, 3)
    _changelogs(location, 3)
    location.rocks("0/0", f"2_{unique('dropped')}", ["000008-a.sst"])
    location.remove("commits/0", "commits/1")
    assert location.needs_of("state/0", 2) == [
        f"0/1_{_id(0, 0)}.changelog",
        f"0/2_{_id(1, 0)}.changelog",
        f"0/2_{unique('dropped')}.zip",
        f"0/3_{_id(2, 0)}.changelog",
        "0/SSTs/000008-a.sst",
    ]


def test_when_old_commits_are_purged_a_gap_in_the_state_is_still_noticed(location: LocationOnDisk) -> None:
    location.describe()
    _commit_ids(location, 5)
    _changelogs(location, 5)
    location.remove("commits/0", "commits/1", f"state/0/0/2_{_id(1, 0)}.changelog")
    with pytest.raises(Vanished, match=r"state/0/0/2 is gone"):
        location.needs(4)


def test_the_commit_of_the_batch_itself_must_be_there(location: LocationOnDisk) -> None:
    location.describe()
    _commit_ids(location, 5)
    _changelogs(location, 5)
    location.remove("commits/4")
    with pytest.raises(Vanished, match=r"commits/4 is gone"):
        location.needs(4)


def test_a_commit_that_was_written_again_is_read_again(location: LocationOnDisk) -> None:
    location.describe()
    _commit_ids(location, 0)
    _changelogs(location, 0)
    assert len(location.needs_of("state/0", 0)) == 2
    again = [unique("again", part) for part in (0, 1)]
    location.commit(0, ids={"0": [[each] for each in again]})
    for part, each in enumerate(again):
        location.write(f"state/0/{part}/1_{each}.changelog", "lineage")
    assert location.needs_of("state/0", 0) == [f"{part}/1_{each}.changelog" for part, each in enumerate(again)]


def test_a_query_that_changed_to_format_2_keeps_its_older_files(location: LocationOnDisk) -> None:
    location.describe(partitions=1)
    location.state("1.changelog", "2.changelog", "3.changelog", partitions=1)
    for batch in (2, 3):
        location.commit(batch, ids={"0": [[_id(batch, 0)]]})
        location.write(f"state/0/0/{batch + 1}_{_id(batch, 0)}.changelog", "lineage")
    newer = [f"0/3_{_id(2, 0)}.changelog", f"0/4_{_id(3, 0)}.changelog"]
    assert location.needs_of("state/0", 3) == ["0/1.changelog", "0/2.changelog", *newer]


def test_a_commit_with_too_few_ids_is_corrupt_and_named(location: LocationOnDisk) -> None:
    location.describe()
    _changelogs(location, 0)
    location.commit(0, ids={"0": [[_id(0, 0)]]})
    with pytest.raises(Corrupt, match=r"commits/0 lacks the state ids of .*state/0/1"):
        location.needs(0)


# joins


def test_a_join_has_four_stores_in_every_partition(location: LocationOnDisk) -> None:
    location.describe(stores=JOIN_STORES)
    location.state("1.delta", "2.delta", "3.delta", stores=JOIN_STORES)
    assert location.needs_of("state/0", 1) == _in_both(*(f"{s}/{n}.delta" for s in JOIN_STORES for n in (1, 2)))
    described = [name for name in location.needs(1) if name.endswith("_metadata/schema")]
    assert described == [f"state/0/0/{store}/_metadata/schema" for store in JOIN_STORES]


def test_in_format_2_each_store_of_a_join_has_ids_of_its_own(location: LocationOnDisk) -> None:
    location.describe(stores=JOIN_STORES)
    _commit_ids(location, 1, JOIN_STORES)
    _changelogs(location, 1, JOIN_STORES)
    location.write(f"state/0/0/{JOIN_STORES[0]}/2_{unique('dropped')}.changelog", "of a task that was tried again")
    expected = [
        f"{part}/{store}/{batch + 1}_{_id(batch, part, store)}.changelog"
        for part in (0, 1)
        for store in JOIN_STORES
        for batch in (0, 1)
    ]
    assert location.needs_of("state/0", 1) == expected


def test_a_store_of_a_join_whose_folder_is_missing_has_vanished(location: LocationOnDisk) -> None:
    location.describe(stores=JOIN_STORES)
    location.state("1.delta", stores=JOIN_STORES)
    shutil.rmtree(location.root / "state/0/1" / JOIN_STORES[3])
    with pytest.raises(Vanished, match=rf"state/0/1/{JOIN_STORES[3]}/1 is gone"):
        location.needs(0)


def test_a_join_of_format_3_has_one_store(location: LocationOnDisk) -> None:
    schema = location.describe_v2(0)
    location.state("1.changelog", "2.changelog")
    for partition in (0, 1):
        location.rocks(f"0/{partition}", "1", ["000008-a.sst"])
    assert location.needs_of("state/0", 1) == _in_both("1.zip", "2.changelog", "SSTs/000008-a.sst")
    assert {schema, "state/0/_metadata/v2/0"} <= set(location.needs(1))


# what operators say about themselves


def test_descriptions_of_later_batches_are_left_out_and_all_others_kept(location: LocationOnDisk) -> None:
    first, second, later = (location.describe_v2(batch) for batch in (0, 3, 4))
    location.state(*(f"{version}.delta" for version in range(1, 7)))
    described = {name for name in location.needs(3) if "_metadata" in name or "_stateSchema" in name}
    assert described == {"state/0/_metadata/v2/0", "state/0/_metadata/v2/3", first, second}
    assert later in location.needs(4)


def test_a_description_that_is_being_written_is_left_out(location: LocationOnDisk) -> None:
    location.describe_v2(0)
    location.write("state/0/_metadata/v2/.3.0c1f-77.tmp", "v2")
    location.write("state/0/_metadata/v2/0.crc", '{"algorithm":"CRC32C","value":1}')
    location.state("1.delta")
    assert [name for name in location.needs(0) if "_metadata/v2" in name] == ["state/0/_metadata/v2/0"]


def test_the_newest_description_says_how_many_partitions_there_are(location: LocationOnDisk) -> None:
    location.describe_v2(9, partitions=4)
    location.describe_v2(10, partitions=1)
    location.state("1.delta", partitions=1)
    assert location.needs_of("state/0", 0) == ["0/1.delta"]


def test_a_partition_whose_folder_is_missing_has_vanished(location: LocationOnDisk) -> None:
    location.describe(partitions=3)
    location.state("1.delta", partitions=2)
    with pytest.raises(Vanished, match=r"state/0/2/1 is gone"):
        location.needs(0)


def test_an_operator_that_says_nothing_has_the_stores_and_partitions_that_are_there(location: LocationOnDisk) -> None:
    location.state("1.delta", stores=JOIN_STORES)
    assert location.needs_of("state/0", 0) == _in_both(*(f"{store}/1.delta" for store in JOIN_STORES))
    shutil.rmtree(location.root / "state/0/0")
    with pytest.raises(Vanished, match=r"state/0/0/1 is gone"):
        location.needs(0)


def test_every_operator_has_state_of_its_own(location: LocationOnDisk) -> None:
    location.describe(partitions=1)
    location.describe(partitions=2, operator=10)
    location.state("1.delta", partitions=1)
    location.state("1.snapshot", partitions=2, operator=10)
    assert location.needs_of("state/0", 0) == ["0/1.delta"]
    assert location.needs_of("state/10", 0) == _in_both("1.snapshot")


@pytest.mark.parametrize("name", ["state/0/_metadata/metadata", "state/0/_metadata/v2/0"])
def test_an_unknown_version_of_a_description_is_refused_by_name(location: LocationOnDisk, name: str) -> None:
    location.state("1.delta")
    location.write(name, "v3\n{}")
    with pytest.raises(UnknownVersion, match=rf"{name} is written in version 'v3'; known are v1, v2"):
        location.needs(0)


@pytest.mark.parametrize(
    "text", ["v1", "v1\n{}", "v1\n{", 'v1\n{"stateStoreInfo":[{"numPartitions":"many"}]}', "v1\n[]"]
)
def test_a_description_that_can_not_be_read_is_corrupt_and_named(location: LocationOnDisk, text: str) -> None:
    location.state("1.delta")
    location.write("state/0/_metadata/metadata", text)
    with pytest.raises(Corrupt, match="state/0/_metadata/metadata does not say which stores and partitions"):
        location.needs(0)
