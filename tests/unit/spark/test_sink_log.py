"""The log of Spark's file sink: what was published up to a batch, also around compaction."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol.errors import Corrupt, UnknownVersion
from airflow_provider_ckpt.spark.streaming.logs import Vanished
from airflow_provider_ckpt.spark.streaming.sink_log import FOLDER, SinkLog
from tests.unit.spark.locations import log_of, published

BATCHES = {0: ["a", "b"], 1: ["c"], 2: [], 3: ["d"], 4: ["e"], 5: ["f"]}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Six batches, compacted at 3, with all single files still there: so it looks until Spark cleans up."""
    for batch, files in BATCHES.items():
        _write(
            tmp_path, f"{batch}.compact" if batch == 3 else str(batch), files if batch != 3 else ["a", "b", "c", "d"]
        )
    return tmp_path


def _write(output: Path, name: str, files: Sequence[str]) -> None:
    (output / FOLDER).mkdir(exist_ok=True)
    (output / FOLDER / name).write_text(log_of(map(published, files)))
    (output / FOLDER / f".{name}.crc").write_bytes(b"crc\0")


def _remove(output: Path, *names: str) -> None:
    for name in names:
        (output / FOLDER / name).unlink()


def _upto(output: Path, batch: int | None) -> list[str]:
    return [piece.source.name for piece in SinkLog(output).upto(batch)]


def _published(output: Path, batch: int | None) -> Mapping[str, int]:
    return {path.removeprefix("file:///out/"): at for path, at in SinkLog(output).published(batch).items()}


def test_the_log_up_to_a_batch_begins_at_the_newest_compacted_file(output: Path) -> None:
    assert _upto(output, 5) == ["3.compact", "4", "5"]
    assert _upto(output, 4) == ["3.compact", "4"]
    assert _upto(output, 3) == ["3.compact"]
    assert _upto(output, 2) == ["0", "1", "2"]
    assert _upto(output, 0) == ["0"]


def test_the_files_of_the_log_are_named_below_the_output(output: Path) -> None:
    piece = SinkLog(output).upto(0)[0]
    assert (piece.name, piece.source, piece.data) == (f"{FOLDER}/0", output / FOLDER / "0", None)


def test_published_files_are_told_apart_by_batch_while_single_files_exist(output: Path) -> None:
    assert _published(output, 5) == {"a": 0, "b": 0, "c": 1, "d": 3, "e": 4, "f": 5}
    assert _published(output, 3) == {"a": 0, "b": 0, "c": 1, "d": 3}
    assert _published(output, 2) == {"a": 0, "b": 0, "c": 1}


def test_a_file_that_only_a_compacted_entry_names_came_with_it_or_before(output: Path) -> None:
    _remove(output, "0", "2")
    assert _published(output, 4) == {"a": 3, "b": 3, "c": 1, "d": 3, "e": 4}


def test_nothing_is_published_before_the_first_batch(output: Path, tmp_path: Path) -> None:
    assert _upto(output, None) == []
    assert _published(output, None) == {}
    elsewhere = SinkLog(tmp_path / "not there")
    assert elsewhere.newest is None
    assert elsewhere.upto(3) == ()
    assert elsewhere.published(3) == {}


def test_the_newest_entry_may_be_a_compacted_one(output: Path) -> None:
    assert SinkLog(output).newest == 5
    _remove(output, "4", "5")
    assert SinkLog(output).newest == 3


def test_a_batch_that_has_left_no_entry_has_published_nothing_more(output: Path) -> None:
    assert _upto(output, 9) == ["3.compact", "4", "5"]
    assert _published(output, 9) == _published(output, 5)
    _write(output, "11", ["late"])
    assert _upto(output, 9) == ["3.compact", "4", "5"]


def test_a_sink_that_came_later_has_published_nothing_before(tmp_path: Path) -> None:
    _write(tmp_path, "7", ["a"])
    assert _upto(tmp_path, 5) == []
    assert _published(tmp_path, 5) == {}


def test_what_was_compacted_away_has_vanished_and_is_not_taken_for_nothing(output: Path) -> None:
    _remove(output, "0", "1", "2")
    for ask in (SinkLog(output).upto, SinkLog(output).published):
        with pytest.raises(Vanished, match=rf"{FOLDER}/2 is gone"):
            ask(2)
    assert _upto(output, 3) == ["3.compact"]


def test_what_spark_is_deleting_right_now_has_vanished(output: Path) -> None:
    """It deletes in no order: older files may still be there when newer ones are gone."""
    _remove(output, "1", "2")
    for ask in (SinkLog(output).upto, SinkLog(output).published):
        with pytest.raises(Vanished, match=rf"{FOLDER}/2 is gone"):
            ask(2)
    _write(output, "2", [])
    with pytest.raises(Vanished, match=rf"{FOLDER}/1 is gone"):
        SinkLog(output).upto(2)


def test_an_unknown_version_of_the_sinks_log_is_refused_by_name(output: Path) -> None:
    (output / FOLDER / "4").write_text("v2\n{}")
    with pytest.raises(UnknownVersion, match=rf"{FOLDER}/4 is written in version 'v2'; known are v1\."):
        SinkLog(output).published(5)


def test_a_broken_entry_of_the_sinks_log_is_corrupt_and_named(output: Path) -> None:
    (output / FOLDER / "4").write_text('v1\n{"path":')
    with pytest.raises(Corrupt, match=rf"{FOLDER}/4 is not what Spark writes"):
        SinkLog(output).published(5)


def test_what_came_with_a_compacted_entry_is_known_after_the_next_compaction(tmp_path: Path) -> None:
    """Batch 3 has no file of its own, only the compacted one: it must not be taken for batch 7."""
    names: list[str] = []
    for batch in range(9):
        names.append(f"f{batch}")
        is_compact = batch in (3, 7)
        _write(tmp_path, f"{batch}.compact" if is_compact else str(batch), names if is_compact else names[-1:])
    published = SinkLog(tmp_path).published(8)
    assert {path.rpartition("/")[2]: batch for path, batch in published.items()} == {
        "f0": 3, "f1": 3, "f2": 3, "f3": 3, "f4": 4, "f5": 5, "f6": 6, "f7": 7, "f8": 8
    }  # fmt: skip
