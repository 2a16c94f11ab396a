"""Where a new attempt starts: from the tip of the dead one, with its channels and outputs."""

from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol.codec import Json
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.errors import Corrupt, Refused
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.laying_out import find_tip_damage, lay_out_output, lay_out_tip, tip_output
from airflow_provider_ckpt.spark.streaming import logs
from airflow_provider_ckpt.spark.streaming.location import Location
from airflow_provider_ckpt.spark.streaming.sink_log import FOLDER, SinkLog
from tests.unit.spark.locations import LocationOnDisk, log_of, text_of

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
    for checksums in folder.root.rglob("*.crc"):
        checksums.unlink()
    return folder


def _publish(output: Path, batch: int) -> None:
    (output / FOLDER).mkdir(parents=True, exist_ok=True)
    (output / f"part-{batch}").write_text(f"rows of {batch}")
    line = text_of({"path": f"{output.as_uri()}/part-{batch}", "size": 9, "action": "add"})
    (output / FOLDER / str(batch)).write_text(log_of([line]))


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


def test_a_query_that_never_had_a_location_has_no_tip(dead: AttemptFolder) -> None:
    graph = Graph((*GRAPH.queries, Query(name="later")))
    assert "is not there" in (find_tip_damage(graph, dead) or "")


def test_an_output_is_taken_over_up_to_the_log_and_one_that_lost_a_file_is_refused(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in ("attempt-1", "attempt-2", "attempt-3"))
    for batch in range(3):
        _publish(old, batch)
    (old / "part-9").write_text("never published")
    log = list(tip_output(old))[:2]  # as a checkpoint at batch 1 has kept it
    lay_out_output(old, new, log)
    assert sorted(file.name for file in new.glob("part-*")) == ["part-0", "part-1"]
    assert logs.path_of(new, logs.log_lines(new / FOLDER / "1")[0]) == f"{new.as_uri()}/part-1"
    (old / "part-0").unlink()
    with pytest.raises(Refused, match="part-0 is gone, and its log says that it was published"):
        lay_out_output(old, other, log)


def test_a_folder_of_a_partition_is_written_in_the_log_as_a_uri(tmp_path: Path) -> None:
    old, new = tmp_path / "attempt-1", tmp_path / "attempt-2"
    (old / FOLDER).mkdir(parents=True)
    (old / "k=a b").mkdir()
    (old / "k=a b" / "part-0").write_text("rows")
    line = text_of({"path": f"{old.as_uri()}/k=a%20b/part-0", "size": 4, "action": "add"})
    (old / FOLDER / "0").write_text(log_of([line]))
    lay_out_output(old, new, tip_output(old))
    assert (new / "k=a b" / "part-0").read_text() == "rows"
    assert SinkLog(new).data(next(iter(SinkLog(new).published(0)))).source.exists()


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "{old}/../secret", "s3://bucket/part-0"])
def test_a_log_that_names_what_lies_elsewhere_is_corrupt(tmp_path: Path, uri: str) -> None:
    old = tmp_path / "attempt-1"
    line = text_of({"path": uri.replace("{old}", old.as_uri()), "size": 4, "action": "add"})
    with pytest.raises(Corrupt):
        lay_out_output(old, tmp_path / "attempt-2", [("0", log_of([line]).encode())])
