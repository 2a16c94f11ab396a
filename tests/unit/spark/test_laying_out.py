"""Where a new attempt starts: from the tip of the dead one, with its channels."""

from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol.codec import Json
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.errors import Corrupt
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.laying_out import find_tip_damage, lay_out_tip
from airflow_provider_ckpt.spark.streaming.location import Location
from airflow_provider_ckpt.spark.streaming.sink_log import FOLDER, SinkLog
from tests.unit.spark.locations import LocationOnDisk, add_checksums, log_of, text_of

GRAPH = Graph(
    (
        Query(name="clean", writes=frozenset({"ab"})),
        Query(name="totals", reads=frozenset({"ab"})),
    )
)


@pytest.fixture
def dead(tmp_path: Path) -> AttemptFolder:
    """Two queries over a channel; `totals` has planned batch 2 and died before it was committed."""
    folder = AttemptFolder(work=tmp_path, pipeline="orders", attempt=1)
    LocationOnDisk(folder.location("clean")).run(2)
    totals = LocationOnDisk(folder.location("totals"))
    totals.run(1)
    totals.describe()
    totals.state("1.delta", "2.delta")
    totals.plan(2, {"logOffset": 2})
    entry: dict[str, Json] = {"path": f"{folder.channel('ab').as_uri()}/part-2", "timestamp": 1, "batchId": 2}
    totals.write("sources/0/2", log_of([text_of(entry)]))
    for batch in range(3):
        _publish(folder.channel("ab"), batch)
    return folder


def _publish(output: Path, batch: int) -> None:
    (output / FOLDER).mkdir(parents=True, exist_ok=True)
    (output / f"part-{batch}").write_text(f"rows of {batch}")
    line = text_of({"path": f"{output.as_uri()}/part-{batch}", "size": 9, "action": "add"})
    (output / FOLDER / str(batch)).write_text(log_of([line]))
    for file in (output / f"part-{batch}", output / FOLDER / str(batch)):
        add_checksums(file)


def test_a_tip_has_the_batch_that_was_planned_and_paths_of_the_new_folder(dead: AttemptFolder) -> None:
    assert find_tip_damage(GRAPH, dead) is None
    new = dead.of(2)
    lay_out_tip(GRAPH, dead, new)
    totals = Location(new.location("totals"))
    assert (totals.committed, totals.planned) == (1, 2)
    assert f"{new.channel('ab').as_uri()}/part-2" in totals.seen("0", 2)
    published = SinkLog(new.channel("ab")).published(2)
    assert list(published) == [f"{new.channel('ab').as_uri()}/part-{batch}" for batch in range(3)]
    assert (new.channel("ab") / "part-2").read_text() == "rows of 2"
    state = new.location("totals") / "state" / "0" / "0" / "2.delta"
    assert state.samefile(dead.location("totals") / "state" / "0" / "0" / "2.delta"), "not a byte was copied"


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("queries/totals/state/0/1/2.delta", "is gone"),
        ("queries/totals/offsets/0", "is gone"),
        ("channels/ab/part-1", "is gone"),  # it may be in flight
        ("queries/clean/commits/2", None),  # then batch 2 is the one in the middle
    ],
)
def test_a_tip_without_a_file_that_it_needs_is_damaged(dead: AttemptFolder, missing: str, text: str | None) -> None:
    (dead.root / missing).unlink()
    damage = find_tip_damage(GRAPH, dead)
    assert (damage is None) if text is None else (text in (damage or ""))


def test_a_file_without_a_checksum_is_not_intact(dead: AttemptFolder) -> None:
    (dead.location("totals") / "commits" / ".1.crc").unlink()
    assert "commits/1 has no checksum" in (find_tip_damage(GRAPH, dead) or "")
    with pytest.raises(Corrupt, match=r"The tip of attempt 1 of orders is damaged: .*commits/1 has no checksum"):
        lay_out_tip(GRAPH, dead, dead.of(2))


@pytest.mark.parametrize("is_written_again", [False, True])
def test_a_file_whose_checksums_were_not_renamed_yet_is_intact(dead: AttemptFolder, is_written_again: bool) -> None:
    """Spark was killed between the two renames; of a file that was written again the old checksums are still there."""
    commits = dead.location("totals") / "commits"
    sums = (commits / ".1.crc").read_bytes()
    (commits / "..1.0ef3ab7e-0fbb-47d8-8b0c-7a4e3f5a4d1c.tmp.crc").write_bytes(sums)
    if is_written_again:
        (commits / ".1.crc").write_bytes(sums[:-1] + bytes([sums[-1] ^ 1]))
    else:
        (commits / ".1.crc").unlink()
    assert find_tip_damage(GRAPH, dead) is None
    lay_out_tip(GRAPH, dead, dead.of(2))
    assert (dead.of(2).location("totals") / "commits" / ".1.crc").read_bytes() == sums
    (commits / "1").write_bytes(b"v1\n{}")
    assert "commits/1 does not match its checksums" in (find_tip_damage(GRAPH, dead) or "")


def test_one_flipped_bit_in_what_was_laid_out_is_found_also_in_a_tip_of_a_tip(dead: AttemptFolder) -> None:
    """What was written anew has a checksum of ours, what was linked has taken Spark's along."""
    second, third = dead.of(2), dead.of(3)
    lay_out_tip(GRAPH, dead, second)
    lay_out_tip(GRAPH, second, third)
    assert find_tip_damage(GRAPH, third) is None
    for name in ("sources/0/2", "state/0/0/2.delta"):
        file = third.location("totals") / name
        intact = file.read_bytes()
        file.write_bytes(bytes([intact[0] ^ 1]) + intact[1:])
        assert f"{name} does not match its checksum" in (find_tip_damage(GRAPH, third) or "")
        file.write_bytes(intact)
    assert find_tip_damage(GRAPH, third) is None


def test_nothing_that_the_old_driver_still_writes_gets_into_a_tip_that_is_sealed(dead: AttemptFolder) -> None:
    sealed = dead.seal()
    clean = LocationOnDisk(dead.location("clean"))  # it makes its folder anew
    clean.run(5)
    _publish(dead.channel("ab"), 3)
    assert dead.left() == sealed
    assert find_tip_damage(GRAPH, dead.left()) is None
    new = dead.of(2)
    lay_out_tip(GRAPH, sealed, new)
    assert Location(new.location("clean")).committed == 2
    assert list(SinkLog(new.channel("ab")).published(9)) == [
        f"{new.channel('ab').as_uri()}/part-{batch}" for batch in range(3)
    ]
    assert dead.seal() == sealed, "whoever comes second finds what the first one has sealed"
    new.forget_older()
    assert not sealed.root.exists()
    assert not dead.root.exists()


def test_the_log_of_a_channel_ends_with_the_batch_that_its_writer_had_planned(dead: AttemptFolder) -> None:
    _publish(dead.channel("ab"), 3)  # by a driver that was still alive
    new = dead.of(2)
    lay_out_tip(GRAPH, dead, new)
    assert SinkLog(new.channel("ab")).newest == 2
    assert not (new.channel("ab") / "part-3").exists()


def test_a_query_that_never_had_a_location_has_no_tip(dead: AttemptFolder) -> None:
    graph = Graph((*GRAPH.queries, Query(name="later")))
    assert "is not there" in (find_tip_damage(graph, dead) or "")


def test_a_folder_of_a_partition_is_written_in_the_log_as_a_uri(dead: AttemptFolder) -> None:
    old, new = dead.channel("ab"), dead.of(2)
    folder = old / "k=a b"
    folder.mkdir()
    (folder / "part-2").write_text("rows")
    line = text_of({"path": f"{old.as_uri()}/k=a%20b/part-2", "size": 4, "action": "add"})
    (old / FOLDER / "2").write_text(log_of([line]))
    for file in (folder / "part-2", old / FOLDER / "2"):
        add_checksums(file)
    lay_out_tip(GRAPH, dead, new)
    log = SinkLog(new.channel("ab"))
    assert (new.channel("ab") / "k=a b" / "part-2").read_text() == "rows"
    assert f"{new.channel('ab').as_uri()}/k=a%20b/part-2" in log.published(2)


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "{channel}/../secret", "s3://bucket/part-0"])
def test_a_log_that_names_what_lies_elsewhere_is_corrupt(tmp_path: Path, uri: str) -> None:
    with pytest.raises(Corrupt):
        SinkLog(tmp_path).data(uri.replace("{channel}", tmp_path.as_uri()))
