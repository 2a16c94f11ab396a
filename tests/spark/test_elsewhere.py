"""Elsewhere than in a local folder with its store at hand: on S3, on HDFS, with a rebuilt store, in a notebook."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest

from airflow_provider_ckpt.coordinator.cleanup import cleanup
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.coordinator.rebuild import rebuild
from airflow_provider_ckpt.coordinator.verify import verify
from airflow_provider_ckpt.protocol.records import Checkpoint, Rung
from airflow_provider_ckpt.protocol.settings import change_settings
from tests.hdfs import Hdfs
from tests.spark.stage import NAME, Stage, feed, outputs

pytestmark = [pytest.mark.slow, pytest.mark.spark]
FILES, ROWS = 6, 10


@pytest.fixture(params=["S3", "HDFS"])
def storage_url(request: pytest.FixtureRequest) -> str:
    if request.param == "S3":
        return str(request.getfixturevalue("bucket"))
    hdfs: Hdfs = request.getfixturevalue("hdfs")
    return hdfs.new_url()


def test_a_checkpoint_elsewhere_is_restored_when_the_store_and_the_location_are_gone(
    tmp_path: Path, new_database: Callable[[str], str], storage_url: str
) -> None:
    feed(tmp_path / "source", FILES)
    out, truth = tmp_path / "out", tmp_path / "truth"
    lost = Stage(folder=tmp_path, url=new_database("sqlite"), storage_url=storage_url)
    driver = lost.start("totals", tmp_path / "source", out, "gate=3", "copy=no")
    lost.running(driver)
    lost.until(lambda: lost.committed("totals") >= 2, driver)
    first = lost.checkpoint(driver)
    again = lost.checkpoint(driver)
    assert first.decision is not None
    assert again.decision is not None
    assert again.decision.new_bytes == 0, "nothing has changed: nothing is uploaded again"
    _small_files_lie_together(lost, again)
    _cleanup_keeps_what_the_newest_needs(lost, again)
    driver.kill()
    lost.delete_work(1)
    lost.close()

    found = Stage(folder=tmp_path, url=new_database("sqlite"), storage_url=storage_url, is_made=False)
    rebuild(found.context, NAME)
    restored = found.restore()
    assert restored.choice.rung is Rung.CHECKPOINT
    (out / "go").touch()
    new = found.start("totals", tmp_path / "source", out, "copy=no")
    assert new.wait() == 0, new.said()
    plain = found.start("totals", tmp_path / "source", truth, "copy=no", is_plain=True)
    assert plain.wait() == 0, plain.said()
    last = load_manifest(found.context, found.store.checkpoints.page(NAME, limit=1).checkpoints[0])
    assert any(path.startswith("files/1/") for path in last.files), "what was laid out is not uploaded again"
    found.close()
    assert outputs(out / "totals") == outputs(truth / "totals")


def test_where_the_default_file_system_is_another_spark_writes_where_the_agent_looks(stage: Stage, hdfs: Hdfs) -> None:
    """As on nearly every YARN cluster: a path without a scheme would lead Spark to HDFS."""
    source, out = stage.folder / "source", stage.folder / "out"
    feed(source, FILES, rows=ROWS)
    conf = {"spark.hadoop.fs.defaultFS": f"hdfs://{hdfs.rpc}"}
    driver = stage.start("totals", source.as_uri(), out, "gate=3", conf=conf)
    stage.running(driver)
    stage.until(lambda: stage.committed("totals") >= 2 and stage.committed("copy") >= FILES - 1, driver)
    checkpoint = stage.checkpoint(driver)
    assert checkpoint.decision is not None
    assert checkpoint.decision.full_files > FILES
    driver.kill()
    stage.delete_work(1)
    stage.restore()
    (out / "go").touch()
    again = stage.start("totals", source.as_uri(), out, conf=conf)
    assert again.wait() == 0, again.said()
    assert ds.dataset(out / "copy", format="parquet").count_rows() == FILES * ROWS
    assert sum(_last_totals(out)) == sum(file * 50 + row for file in range(FILES) for row in range(ROWS))


def _last_totals(out: Path) -> list[int]:
    """Every batch has every key."""
    last = (out / "totals" / str(FILES - 1)).read_text()
    return [json.loads(line)["s"] for line in last.splitlines()]


def _small_files_lie_together(stage: Stage, checkpoint: Checkpoint) -> None:
    manifest = load_manifest(stage.context, checkpoint)
    assert len(manifest.files) <= len(manifest.parts)
    assert len([name for file in manifest.laid_out for name in file.names]) > 2 * len(manifest.parts)


def _cleanup_keeps_what_the_newest_needs(stage: Stage, newest: Checkpoint) -> None:
    """All of it was stored for the one before, which goes."""
    stage.store.pipelines.change(NAME, lambda was: change_settings(was, {"keep_last": "1"}), actor="tester")
    assert set(cleanup(stage.context, NAME).kept) == {newest.ref.id}
    assert verify(stage.context, newest.ref).is_intact


def test_spark_submit_runs_it_and_a_notebook_needs_no_block_and_no_waiting(stage: Stage) -> None:
    """`spark-submit` itself, on a program that leaves the agent alone as a notebook would."""
    feed(stage.folder / "source", FILES)
    program = stage.folder / "notebook.py"
    program.write_text(NOTEBOOK)
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    driver = stage.submit(submit, program, stage.folder / "source", stage.folder / "end")
    stage.running(driver)
    stage.until(lambda: stage.committed("seen") >= 1, driver)
    checkpoint = stage.checkpoint(driver)
    assert stage.store.barriers.cuts(checkpoint.ref)["seen"].batch is not None
    (stage.folder / "end").touch()
    assert driver.wait() == 0, driver.said()


NOTEBOOK = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from airflow_provider_ckpt.spark import CheckpointAgent

spark = SparkSession.builder.getOrCreate()
ckpt = CheckpointAgent.from_conf(spark)
rows = spark.readStream.schema("k int, v int").option("maxFilesPerTrigger", 1).json(sys.argv[1])
writer = rows.groupBy("k").count().writeStream.outputMode("update").format("noop")
writer.option("checkpointLocation", ckpt.location("seen", is_rewindable=True)).queryName("seen").start()
ckpt.all_started()
while not Path(sys.argv[2]).exists():
    time.sleep(0.1)
ckpt.close()
spark.stop()
"""
