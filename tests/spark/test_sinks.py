"""Sinks that publish exactly once, on real Spark: killed at every moment, restored, and read by independent clients."""

import getpass
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from fsspec.implementations.webhdfs import WebHDFS
from pyiceberg.catalog import load_catalog

from airflow_provider_ckpt.coordinator.health import health
from airflow_provider_ckpt.coordinator.restore import Restored, RestoreOptions, restore
from airflow_provider_ckpt.coordinator.sla import judge
from airflow_provider_ckpt.protocol.alerts import AlertState
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Ref, SinkStatus
from airflow_provider_ckpt.protocol.recovery import Target
from airflow_provider_ckpt.spark.sinks import DeltaSink, Name
from airflow_provider_ckpt.spark.tips import tip_checker
from tests.harness import campaign
from tests.hdfs import Hdfs
from tests.spark.stage import NAME, Driver, Stage, feed

pytestmark = [pytest.mark.slow, pytest.mark.spark]
ROWS = 10
Recorder = Callable[[str, object], None]
Rows = Counter[tuple[int, int]]


def truth(files: int) -> Rows:
    return Counter((row % 7, file * 50 + row) for file in range(files) for row in range(ROWS))


def read_files(out: Path, database: str) -> Rows:
    folder = out / "files"
    files = sorted(str(file) for file in folder.glob("*.parquet")) if folder.exists() else []
    rows = ds.dataset(files, format="parquet").to_table().to_pylist() if files else []
    return Counter((row["k"], row["v"]) for row in rows)


def read_delta(out: Path, database: str) -> Rows:
    if not DeltaTable.is_deltatable(str(out / "delta")):
        return Counter()
    rows = DeltaTable(str(out / "delta")).to_pyarrow_table().to_pylist()
    return Counter((row["k"], row["v"]) for row in rows)


def read_iceberg(out: Path, database: str) -> Rows:
    uri, warehouse = f"sqlite:///{out}/catalog.db", f"file://{out}/iceberg"
    catalog = load_catalog("lake", type="sql", uri=uri, warehouse=warehouse)
    if not catalog.table_exists("lake.rows"):
        return Counter()
    rows = catalog.load_table("lake.rows").scan().to_arrow().to_pylist()
    return Counter((row["k"], row["v"]) for row in rows)


def read_postgres(out: Path, database: str) -> Rows:
    with psycopg.connect(database) as connection:
        return Counter(connection.execute("SELECT k, v FROM rows").fetchall())


class OnHdfs:
    """The target of a sink on HDFS, as others read it: by fsspec and pyarrow, without a line of ours."""

    def __init__(self, hdfs: Hdfs) -> None:
        self.url = hdfs.new_url()
        host, port = hdfs.http.split(":")
        self._root = urlsplit(self.url).path
        self._fs = WebHDFS(host=host, port=int(port), user=getpass.getuser())

    def read(self, out: Path, database: str) -> Rows:
        files = [each for each in self._files() if "/.ckpt/" not in each]
        rows = ds.dataset(files, format="parquet", filesystem=self._fs).to_table().to_pylist() if files else []
        return Counter((row["k"], row["v"]) for row in rows)

    def staged(self) -> list[str]:
        return [each for each in self._files() if "/staged/" in each]

    def _files(self) -> list[str]:
        return [each for each in self._fs.find(self._root) if each.endswith(".parquet")]


READ = {"files": read_files, "delta": read_delta, "iceberg": read_iceberg, "postgres": read_postgres}
ALL = tuple(READ)


class Life:
    """A pipeline over many drivers; more input comes whenever somebody asks for it."""

    def __init__(self, stage: Stage, database: str, kinds: tuple[str, ...] = ALL) -> None:
        self.stage = stage
        self.database = database.replace("+psycopg", "")
        self.kinds = kinds
        self.out = stage.folder / "out"
        self.out.mkdir()
        self.crashes = stage.folder / "crashes"
        self.crashes.mkdir()
        self.files = 0
        stage.environment |= {
            "CRASHES": str(self.crashes),
            "ROWS_DATABASE": self.database,
            "PYICEBERG_CATALOG__LAKE__TYPE": "sql",
            "PYICEBERG_CATALOG__LAKE__URI": f"sqlite:///{self.out}/catalog.db",
            "PYICEBERG_CATALOG__LAKE__WAREHOUSE": f"file://{self.out}/iceberg",
        }
        with psycopg.connect(self.database) as connection:
            connection.execute("CREATE TABLE rows (k int, v int)")

    def feed(self, files: int) -> None:
        feed(self.stage.folder / "source", files, rows=ROWS, start=self.files)
        self.files += files

    def start(self, *options: str) -> Driver:
        kinds = ",".join(self.kinds)
        return self.stage.start("sinks", self.stage.folder / "source", self.out, f"sinks={kinds}", *options)

    def wait_for(self, driver: Driver) -> None:
        """Until every query has staged and committed all that came in."""
        attempt = self.stage.running(driver).number
        self.stage.until(
            lambda: all(self.stage.committed(kind, attempt) >= self.files - 1 for kind in self.kinds), driver
        )

    def run_until_death(self, driver: Driver) -> None:
        """Take a checkpoint as soon as everything that came in is staged."""
        is_triggered, give_up = False, time.monotonic() + 240
        attempt = self.stage.attempt()
        number = 1 if attempt is None else attempt.number
        while not driver.has_ended:
            assert time.monotonic() < give_up, driver.said()
            is_staged = all(self.stage.committed(kind, number) >= self.files - 1 for kind in self.kinds)
            if is_staged and not is_triggered and self.stage.store.checkpoints.in_flight(NAME) is None:
                is_triggered = bool(self.stage.trigger())
            time.sleep(0.1)

    def restore(self, *, is_rewind: bool = True, to: int | None = None) -> Restored:
        context = self.stage.context
        options = RestoreOptions(
            target=Target(id=to, rewind=is_rewind and to is None),
            tip_damage=tip_checker(self.stage.work),
            is_proven_dead=True,
        )
        return restore(context, NAME, options)

    def seen(self) -> dict[str, Rows]:
        return {kind: READ[kind](self.out, self.database) for kind in self.kinds}

    def tries(self, ref: Ref, kind: str) -> int:
        return next((each.tries for each in self.stage.store.sinks.of(ref) if each.sink == f"{kind}/sink"), 0)

    def each(self, rows: Rows) -> dict[str, Rows]:
        return dict.fromkeys(self.kinds, rows)

    def check_no_row_twice(self) -> None:
        for kind, rows in self.seen().items():
            assert not rows - truth(self.files), f"{kind} has rows twice, or rows that never came in"

    def check_everything(self) -> None:
        for kind, rows in self.seen().items():
            assert rows == truth(self.files), kind
        assert self.staged() == []

    def staged(self) -> list[str]:
        """What no publication has taken yet."""
        files = [str(each) for each in self.out.rglob(".ckpt/*/*/sink/staged/*/*/*.parquet.staged")]
        with psycopg.connect(self.database) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'ckpt\\_staged\\_%'")
            files += [str(table[0]) for table in tables]
        return files

    def finish(self) -> None:
        driver = self.start("trigger=now")
        assert driver.wait() == 0, driver.said()
        self.check_everything()


@pytest.fixture
def life(stage: Stage, empty_database: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Life:
    life = Life(stage, empty_database("postgresql"))
    for name, value in stage.environment.items():  # for the command as well
        monkeypatch.setenv(name, value)
    return life


def test_a_checkpoint_publishes_what_was_staged_and_a_bounded_run_leaves_nothing_staged(
    stage: Stage, life: Life
) -> None:
    life.feed(0)
    driver = life.start()
    stage.running(driver)
    idle = stage.checkpoint(driver)
    assert idle.phase is Phase.COMPLETED, "queries that have had no batch yet hold nobody up"
    assert {each.status for each in stage.store.sinks.of(idle.ref)} == {SinkStatus.NOTHING}
    life.feed(3)
    life.wait_for(driver)
    assert life.seen() == life.each(Counter()), "staged is not published"
    assert stage.checkpoint(driver).phase is Phase.COMPLETED
    assert life.seen() == life.each(truth(3))
    before = DeltaTable(str(life.out / "delta")).version()
    assert stage.checkpoint(driver).phase is Phase.COMPLETED
    assert DeltaTable(str(life.out / "delta")).version() == before, "an idle pipeline adds no empty version"
    life.feed(2)
    life.wait_for(driver)
    driver.kill()
    assert life.seen() == life.each(truth(3))
    assert life.staged()
    stage.restore()
    life.finish()


TIP, REWIND = False, True
DEATHS = (  # each moment, and how the pipeline comes back; who finds a commit open takes it over, and may die of it
    ("before-commit:delta", TIP),  # the first one to publish: decided, and nothing is published
    ("before-commit:files", REWIND),  # the first one to take over
    ("middle:files", TIP),
    ("middle:delta", REWIND),
    ("middle:iceberg", TIP),
    ("middle:postgres", REWIND),
    ("after-commit:postgres", TIP),  # the last one: everything is published, and the checkpoint is not completed
    ("before-stage:all", REWIND),
    ("after-stage:all", TIP),
    ("after-prepare:all", REWIND),
    ("middle:delta", TIP),
    ("middle:files", REWIND),
    ("middle:iceberg", REWIND),
    ("middle:postgres", TIP),
    ("after-commit:postgres", REWIND),
    ("before-stage:all", TIP),
    ("after-stage:all", REWIND),
    ("after-prepare:all", TIP),
)


@pytest.mark.campaign
def test_killed_at_every_moment_every_sink_has_every_row_once(stage: Stage, life: Life) -> None:
    """In the gate one stretch of that life, in six days all of it."""
    stretches = [DEATHS[first : first + 3] for first in range(0, len(DEATHS), 3)]
    live_through(stage, life, [death for stretch in campaign.share(stretches, of=6) for death in stretch])
    life.feed(1)
    life.finish()


def live_through(stage: Stage, life: Life, deaths: Sequence[tuple[str, bool]]) -> None:
    """One pipeline lives through all of it, and is read as an outside reader would after every death."""
    for number, (moment, is_rewind) in enumerate(deaths, 1):
        takes_over = "stage" not in moment and stage.store.checkpoints.in_flight(NAME) is not None
        life.feed(0 if takes_over else 1)
        driver = life.start(f"crash={moment}")
        life.run_until_death(driver)
        assert len(list(life.crashes.iterdir())) == number, f"{moment}\n{driver.said()}"
        life.check_no_row_twice()
        life.restore(is_rewind=is_rewind)


@pytest.fixture
def on_hdfs(stage: Stage, life: Life, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> OnHdfs:
    """The one sink of this life."""
    target = OnHdfs(hdfs)
    monkeypatch.setitem(READ, "hdfs", target.read)
    life.kinds = ("hdfs",)
    stage.environment["ROWS_ON_HDFS"] = target.url
    return target


DEATHS_ON_HDFS = (
    ("middle:hdfs", REWIND),  # one of several files is published
    ("middle:hdfs", TIP),  # whoever takes over dies as well
    ("after-commit:hdfs", REWIND),
    ("after-stage:hdfs", TIP),
)


@pytest.mark.campaign
def test_killed_in_the_middle_of_commits_on_hdfs_every_row_is_there_once(
    stage: Stage, life: Life, on_hdfs: OnHdfs
) -> None:
    live_through(stage, life, campaign.share(DEATHS_ON_HDFS, of=2))
    life.feed(1)
    life.finish()
    assert on_hdfs.staged() == []


def test_the_restore_command_finishes_a_commit_on_hdfs_without_spark(stage: Stage, life: Life, on_hdfs: OnHdfs) -> None:
    life.feed(3)
    driver = life.start("crash=middle:hdfs")
    life.run_until_death(driver)
    assert Counter() < life.seen()["hdfs"] < truth(3), "some of it is published"
    assert on_hdfs.staged(), "and some of it is not"
    stage.ckpt("restore", "orders", "--old-attempt-is-dead")
    assert life.seen() == life.each(truth(3))
    assert on_hdfs.staged() == []


ODD = (  # what is special about each
    "odd_values_in_postgres",
    "an_upsert_keeps_the_newest_of_each_key",
    "odd_partitions_in_delta",
    "rules_of_a_delta_table",
    "partitions_and_times_in_iceberg",
)


def _lines() -> str:
    """Before which lines sinks crash: every twelfth in the gate, all of them in twelve days."""
    return "0:1" if campaign.is_long() else f"{campaign.seed() % 12}:12"


@pytest.mark.campaign
def test_files_on_hdfs_pass_the_conformance_kit(
    stage: Stage, life: Life, hdfs: Hdfs, record_property: Recorder
) -> None:
    driver = stage.start("conformance", life.out, hdfs.new_url(), _lines(), "files on HDFS", is_plain=True)
    assert driver.wait(900) == 0, driver.said()
    assert json.loads((life.out / "faults.json").read_text()) == {"files on HDFS": []}
    record_property("conformance", ", ".join(line for line in driver.said().splitlines() if " s, " in line))


@pytest.mark.campaign
def test_every_sink_passes_the_conformance_kit(
    stage: Stage, life: Life, bucket: str, record_property: Recorder
) -> None:
    """On S3 in some ways only: a crash at every line takes minutes there. In the gate half of the sinks a day."""
    named = [*campaign.share(ALL, of=2), *campaign.share(("files on S3", "delta on S3", "iceberg on S3"), of=2), *ODD]
    driver = stage.start("conformance", life.out, bucket, _lines(), *named, is_plain=True)
    assert driver.wait(900) == 0, driver.said()
    assert json.loads((life.out / "faults.json").read_text()) == {kind: [] for kind in named}
    record_property("conformance", ", ".join(line for line in driver.said().splitlines() if " s, " in line))


@pytest.mark.campaign
@campaign.orders_of_two()
def test_an_old_driver_that_wakes_up_in_the_middle_of_a_batch_publishes_nothing(
    stage: Stage, life: Life, old_first: bool
) -> None:
    life.feed(2)
    old = life.start()
    life.wait_for(old)
    stage.checkpoint(old)
    (life.out / "freeze-batch").touch()
    life.feed(1)
    stage.until(lambda: all((life.out / f"frozen-{kind}").exists() for kind in ALL), old)
    stage.freeze(old)
    (life.out / "freeze-batch").unlink()
    life.restore()
    if old_first:
        _wakes_up_and_ends(old)
        assert life.seen() == life.each(truth(2))
    new = life.start()
    life.feed(1)
    life.wait_for(new)
    stage.checkpoint(new)
    if not old_first:
        _wakes_up_and_ends(old)
    assert life.seen() == life.each(truth(4))
    new.kill()
    life.restore()
    life.finish()


def _wakes_up_and_ends(old: Driver) -> None:
    old.thaw()
    assert old.wait() != 0
    assert "was replaced by a newer one" in old.said()


@pytest.mark.campaign
@campaign.orders_of_two()
def test_an_old_driver_that_wakes_up_in_the_middle_of_a_commit_publishes_nothing_twice(
    stage: Stage, life: Life, old_first: bool
) -> None:
    frozen = "delta" if old_first else "postgres"  # the first one that publishes, and the last
    life.feed(3)
    old = life.start()
    life.wait_for(old)
    (life.out / f"freeze-{frozen}").touch()  # the store was asked, the target is about to change
    stage.trigger()
    stage.until((life.out / f"frozen-{frozen}").exists, old)
    stage.freeze(old)
    (life.out / f"freeze-{frozen}").unlink()
    life.restore()
    if old_first:
        old.thaw()
        stage.until(lambda: life.seen()["delta"] == truth(3))
        assert old.wait() != 0
        assert "was replaced by a newer one" in old.said()
        assert life.seen() == life.each(Counter()) | {"delta": truth(3)}
    else:
        assert life.seen() == life.each(truth(3)) | {"postgres": Counter()}
    new = life.start()
    life.feed(2)
    life.wait_for(new)
    stage.checkpoint(new)
    assert life.seen() == life.each(truth(5))
    if not old_first:
        _wakes_up_and_ends(old)
    assert life.seen() == life.each(truth(5))
    new.kill()
    life.restore()
    life.finish()


def test_a_sink_that_fails_for_long_keeps_the_checkpoint_committing_and_nothing_else(stage: Stage, life: Life) -> None:
    life.feed(2)
    driver = life.start()
    life.wait_for(driver)
    (life.out / "fail-iceberg").touch()
    ref = stage.trigger().ref
    stage.until(lambda: life.tries(ref, "iceberg") >= 2, driver)
    assert life.seen() == life.each(truth(2)) | {"iceberg": Counter()}, "the others have published"
    assert stage.store.checkpoints.get(ref).phase is Phase.COMMITTING
    shown = stage.ckpt("show", str(ref))
    assert "COMMITTING" in shown
    assert "the target of iceberg is out of order" in shown
    assert f"ckpt resolve {ref} --sink iceberg/sink --as committed|abandoned" in shown
    with pytest.raises(AssertionError, match="orders/1 is COMMITTING"):
        stage.trigger()
    stage.store.pipelines.change(NAME, lambda settings: replace(settings, timeout=timedelta(seconds=1)), actor="tester")
    stage.until(lambda: health(stage.context, NAME).problems)
    problems = judge(stage.context, NAME)
    assert "orders/1 has been COMMITTING for" in str(problems[0])
    assert "a sink does not commit" in str(problems[0])
    assert len(stage.store.alerts.raise_for(NAME, problems, actor="tester")) == len(problems), "people are told"
    assert not stage.store.alerts.raise_for(NAME, problems, actor="tester"), "and once"
    stage.store.pipelines.change(NAME, lambda settings: replace(settings, timeout=timedelta(minutes=5)), actor="tester")
    (life.out / "fail-iceberg").unlink()
    stage.until(lambda: stage.store.checkpoints.get(ref).phase is Phase.COMPLETED, driver)
    assert life.seen() == life.each(truth(2)), "it completes by itself once the sink is back"
    over = stage.store.alerts.raise_for(NAME, judge(stage.context, NAME), actor="tester")
    assert [each.state for each in over] == [AlertState.OVER]
    life.feed(2)
    life.wait_for(driver)
    (life.out / "fail-iceberg").touch()
    lost = stage.trigger().ref
    stage.until(lambda: life.tries(lost, "iceberg") >= 1, driver)
    stage.ckpt("resolve", str(lost), "--sink", "iceberg/sink", "--as", "abandoned", "--reason", "it burnt down")
    stage.until(lambda: stage.store.checkpoints.get(lost).phase is Phase.COMPLETED, driver)
    (life.out / "fail-iceberg").unlink()
    life.feed(1)
    life.wait_for(driver)
    stage.checkpoint(driver)
    kept = life.each(truth(5))
    assert life.seen() == kept | {"iceberg": truth(5) - (truth(4) - truth(2))}
    check_shown(json.loads(stage.ckpt("show", "orders/3", "--json"))["sinks"])
    assert "10 rows" in stage.ckpt("show", "orders/3")


def check_shown(sinks: list[dict[str, Any]]) -> None:
    """What each sink has staged and committed, and what its target calls it."""
    versions = {"delta": "version ", "files": "checkpoint 3", "iceberg": "snapshot ", "postgres": "transaction "}
    assert [sink["name"] for sink in sinks] == [f"{kind}/sink" for kind in versions]
    for sink, version in zip(sinks, versions.values(), strict=True):
        staged, published = sink["staged"], sink["published"]
        assert sink["status"] == "committed"
        assert published["version"].startswith(version)
        assert staged["rows"] == published["rows"] == ROWS
        assert staged["bytes"] == published["bytes"] > 0
        assert staged["files"] == published["files"]
        assert (published["files"] > 0) == (sink["name"] != "postgres/sink")


def test_a_restore_behind_what_is_published_rolls_back_or_is_refused(stage: Stage, life: Life) -> None:
    life.kinds = ("files", "delta", "iceberg", "postgres")
    life.feed(2)
    driver = life.start()
    for _ in range(3):
        life.wait_for(driver)
        stage.checkpoint(driver)
        life.feed(2)
    driver.kill()
    with pytest.raises(AssertionError, match="sink postgres/sink has already committed orders/3"):
        stage.ckpt("restore", "orders", "--to", "1", "--old-attempt-is-dead")
    assert life.seen() == life.each(truth(6)), "what is refused changes nothing"
    price = stage.ckpt(
        "restore", "orders", "--to", "1", "--old-attempt-is-dead", "--accept-duplicates", "postgres/sink"
    )
    assert "rolls back sink delta/sink, rolls back sink files/sink, rolls back sink iceberg/sink" in " ".join(
        price.split()
    )
    assert "may duplicate rows in sink postgres/sink" in " ".join(price.split())
    again = life.start("trigger=now")
    assert again.wait() == 0, again.said()
    everything = truth(8)
    again_written = truth(6) - truth(2)
    assert life.seen() == life.each(everything) | {"postgres": everything + again_written}
    assert life.staged() == []
    left = life.out / "delta" / ".ckpt" / NAME / "delta" / "sink" / "staged" / "1" / "99-left"
    left.mkdir(parents=True)
    (left / "part.parquet").write_bytes(b"12345")
    audit = json.loads(stage.ckpt("cleanup", "orders", "--dry-run", "--json"))
    assert audit["left_staged"] == {str(left): "delta/sink of attempt 1, 5 bytes"}
    table = str(life.out / "delta")
    name = Name(pipeline=NAME, sink="delta/sink")
    assert DeltaSink(table).history(name)
    write_deltalake(table, pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32())}), mode="append")
    assert not DeltaSink(table).history(name), "somebody else has written since"
