"""Tips: what a dead attempt has left is only good to start from when it is whole."""

from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol.cut import Query
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.notes import read_descriptions, write_description
from airflow_provider_ckpt.spark.tips import find_damage
from tests.unit.spark.locations import LocationOnDisk

TOTALS = Query(name="totals", reads=frozenset({"ab"}), writes=frozenset({"bc"}))


@pytest.fixture
def dead(tmp_path: Path) -> AttemptFolder:
    """One query, which was described and has run."""
    folder = AttemptFolder(work=tmp_path, pipeline="orders", attempt=1)
    LocationOnDisk(folder.location("totals")).run(1)
    write_description(folder, TOTALS, {"sources": ["json"]})
    return folder


def test_a_tip_knows_its_queries_and_what_they_are_made_of(dead: AttemptFolder) -> None:
    graph, described = read_descriptions(dead)
    assert graph.queries == (TOTALS,)
    assert described == {"totals": {"sources": ["json"]}}
    assert find_damage(dead) is None


def test_a_query_that_died_before_spark_wrote_anything_is_part_of_the_tip(dead: AttemptFolder) -> None:
    write_description(dead, Query(name="late"), {})
    assert find_damage(dead) == f"{dead.location('late')} is not there", "its location was lost"
    dead.location("late").mkdir()
    assert find_damage(dead) is None


def test_what_was_laid_out_and_never_started_is_no_tip(dead: AttemptFolder) -> None:
    LocationOnDisk(dead.location("other")).run(1)
    assert find_damage(dead) == "it died before it had started other"


def test_nothing_is_started_from_a_folder_without_queries_or_with_a_damaged_description(dead: AttemptFolder) -> None:
    dead.described("totals").write_text('{"query": []}')
    assert "query" in (find_damage(dead) or "")
    dead.forget_query("totals")
    assert find_damage(dead) == f"{dead.root} has no query"
