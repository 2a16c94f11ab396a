"""What may happen to a running pipeline: executors and drivers die, the storage and the store fail, drivers meet.

Everything is real: Spark in processes of its own, kill -9, a PostgreSQL behind a door that can be shut. Input is fed
while the pipeline runs; what it must give is worked out here, from the input alone.
"""

import json
import os
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pyspark
import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.coordinator.follow import follow
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, restore
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import AttemptStatus, Checkpoint, Ref, Rung
from airflow_provider_ckpt.protocol.settings import Settings
from tests.spark.stage import NAME, PROGRAMS, Driver, Stage, feed, outputs

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PASSWORD = "hunter2-is-no-secret"


class Scene:
    """A stage with a running pipeline `running`: its input, its output, and the mood of its storage."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.source = stage.folder / "source"
        self.out = stage.folder / "out"
        self.mood = stage.folder / "mood"
        stage.environment |= {
            "HOSTILE": str(self.mood),
            "PYTHONPATH": f"{PROGRAMS / 'hostile'}{os.pathsep}{Path(__file__).parents[2]}",
        }

    def start(self, *others: str, conf: dict[str, str] | None = None, secrets: dict[str, str] | None = None) -> Driver:
        return self.stage.start("running", self.source, self.out, *others, conf=conf, secrets=secrets)

    def make_storage(self, mood: str) -> None:
        partial = self.mood.with_suffix(".new")
        partial.write_text(mood)
        partial.rename(self.mood)

    @property
    def calls(self) -> int:
        """How many calls a storage that fails has got."""
        counter = self.mood.with_suffix(".calls")
        return counter.stat().st_size if counter.exists() else 0

    def newest(self, query: str = "totals") -> int:
        """The newest batch that the attempts of a query have committed."""
        files = self.stage.work.glob(f"{NAME}/*/queries/{query}/commits/[0-9]*")
        return max((int(file.name) for file in files), default=-1)

    def goes_on(self, driver: Driver, query: str = "totals", batches: int = 2) -> None:
        """See it commit some more."""
        wanted = self.newest(query) + batches
        self.stage.until(lambda: self.newest(query) >= wanted, driver)

    def ended(self, ref: Ref) -> Checkpoint:
        return follow(self.stage.context, ref, timeout=120)

    def unique(self) -> list[str]:
        """What an outside reader finds in the folder of the sink."""
        files = (self.out / "unique").glob("*.json")
        return sorted(line for file in files for line in file.read_text().splitlines())

    def ends_undisturbed(self, driver: Driver, feeder: "Feeder", *, has_unique: bool = False) -> None:
        """Let it come to the end of the input; every batch then gave what it gives without any disturbance."""
        files = feeder.stop()
        self.stage.until(lambda: self.newest() >= files - 1, driver)
        assert outputs(self.out / "totals") == expected_totals(self.source)
        if has_unique:
            self.stage.until(lambda: self.newest("unique") >= files - 1, driver)
            self.stage.checkpoint(driver)
            assert self.unique() == expected_unique(self.source)


class Feeder(threading.Thread):
    """Writes one input file after the other, a few ahead of the pipeline."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(daemon=True)
        self._scene = scene
        self._stopped = threading.Event()
        self.files = 0

    def run(self) -> None:
        while not self._stopped.wait(0.6):
            if self.files - max(self._scene.newest(), self._scene.newest("unique")) < 5:
                feed(self._scene.source, 1, start=self.files)
                self.files += 1

    def stop(self) -> int:
        self._stopped.set()
        self.join()
        return self.files


def expected_totals(source: Path) -> dict[str, str]:
    """What every batch of the running aggregation gives: one file each, in order."""
    totals: dict[int, tuple[int, int]] = {}
    expected = {}
    for number, file in enumerate(sorted(source.glob("*.json"))):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for row in rows:
            s, n = totals.get(row["k"], (0, 0))
            totals[row["k"]] = s + row["v"], n + 1
        changed = {row["k"] for row in rows}
        lines = [json.dumps({"k": k, "n": totals[k][1], "s": totals[k][0]}) for k in changed]
        expected[str(number)] = "\n".join(sorted(lines))
    return expected


def expected_unique(source: Path) -> list[str]:
    rows = [json.loads(line) for file in source.glob("*.json") for line in file.read_text().splitlines()]
    return sorted({json.dumps({"k": row["k"], "u": row["u"]}, separators=(",", ":")) for row in rows})


class Door:
    """A TCP port in front of a PostgreSQL; shut, it ends every connection; stuck, it lets nothing through."""

    def __init__(self, url: str) -> None:
        parsed = sa.make_url(url)
        self._target = f"{parsed.query['host']}/.s.PGSQL.{parsed.port or 5432}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._flows = threading.Event()
        self._flows.set()
        self._is_shut = False
        port = self._listener.getsockname()[1]
        through = sa.URL.create("postgresql", parsed.username, PASSWORD, "127.0.0.1", port, parsed.database)
        self.url = through.render_as_string(hide_password=False)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def shut(self) -> None:
        self._is_shut = True
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def get_stuck(self) -> None:
        self._flows.clear()

    def open(self) -> None:
        self._is_shut = False
        self._flows.set()

    def close(self) -> None:
        self.open()
        self._is_shut = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self.shut()
        for thread in self._threads:
            thread.join()
        for each in (self._listener, *self._sockets):
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._is_shut:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                self._sockets += [client, server]
                for source, sink in ((client, server), (server, client)):
                    thread = threading.Thread(target=self._pump, args=(source, sink), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


NewScene = Callable[..., Scene]


@pytest.fixture
def new_scene(tmp_path: Path, new_database: Callable[[str], str]) -> Iterator[NewScene]:
    """Makes scenes: on SQLite, or on PostgreSQL behind a door."""
    stages: list[Stage] = []

    def make(ttl: float = 60, url: str | None = None, driver_url: str | None = None) -> Scene:
        stage = Stage(
            folder=tmp_path,
            url=url or new_database("sqlite"),
            storage_url=str(tmp_path / "storage"),
            settings=Settings(attempt_ttl=timedelta(seconds=ttl)),
            driver_url=driver_url,
        )
        stages.append(stage)
        return Scene(stage)

    yield make
    for stage in stages:
        stage.close()


@pytest.fixture
def postgresql(new_database: Callable[[str], str]) -> str:
    return new_database("postgresql")


@pytest.fixture
def door(postgresql: str) -> Iterator[Door]:
    door = Door(postgresql)
    yield door
    door.close()


@contextmanager
def fed(scene: Scene) -> Iterator[Feeder]:
    feeder = Feeder(scene)
    feeder.start()
    try:
        yield feeder
    finally:
        feeder.stop()


# processes that die


def test_an_executor_that_is_killed_during_a_checkpoint_stops_neither_the_pipeline_nor_checkpoints(
    new_scene: NewScene,
) -> None:
    scene = new_scene()
    stage = scene.stage
    stage.master = "local-cluster[2,1,1024]"
    stage.environment["SPARK_HOME"] = str(_spark_home(stage.folder))
    with fed(scene) as feeder:
        driver = scene.start()
        stage.running(driver)
        scene.goes_on(driver, batches=3)
        scene.make_storage("slow 0.7")
        ref = stage.trigger().ref
        stage.until(lambda: 0 < stage.store.acks.progress(ref).acked < stage.store.acks.progress(ref).expected, driver)

        executors = _find(driver, "CoarseGrainedExecutorBackend")
        worker = int(scene.mood.with_suffix(".caller").read_text())
        os.kill(next(pid for pid in _ancestors(worker) if pid in executors), signal.SIGKILL)
        first = scene.ended(ref)
        assert first.phase is Phase.COMPLETED or (first.failure is not None and first.failure.message), driver.said()
        scene.make_storage("")
        scene.goes_on(driver)
        stage.checkpoint(driver)

        lost = [line for line in driver.log.read_text().splitlines() if "ExecutorLostFailure" in line]
        assert any("queryId" not in line for line in lost), "no task of a checkpoint was lost"
        scene.ends_undisturbed(driver, feeder)


def test_a_driver_that_is_killed_between_acknowledgements_goes_on_from_the_checkpoint_before(
    new_scene: NewScene,
) -> None:
    scene = new_scene()
    stage = scene.stage
    with fed(scene) as feeder:
        driver = scene.start("unique")
        stage.running(driver)
        scene.goes_on(driver)
        scene.goes_on(driver, "unique")
        before = stage.checkpoint(driver)
        scene.goes_on(driver)
        scene.make_storage("slow 0.5")
        ref = stage.trigger().ref
        stage.until(lambda: 0 < stage.store.acks.progress(ref).acked < stage.store.acks.progress(ref).expected, driver)
        driver.kill()
        scene.make_storage("")

        restored = stage.restore()
        assert restored.choice.rung is Rung.CHECKPOINT
        assert restored.attempt.restored_from == before.ref.id
        assert stage.store.checkpoints.get(ref).phase is Phase.FAILED
        again = scene.start("unique")
        scene.goes_on(again)
        stage.checkpoint(again)
        scene.ends_undisturbed(again, feeder, has_unique=True)


def test_a_driver_whose_jvm_is_killed_ends_and_does_not_look_alive(new_scene: NewScene) -> None:
    scene = new_scene()
    stage = scene.stage
    with fed(scene):
        driver = scene.start()
        stage.running(driver)
        scene.goes_on(driver)
        os.kill(_find(driver, "SparkSubmit")[0], signal.SIGKILL)

        assert driver.wait(30) != 0
        attempt = stage.attempt()
        assert attempt is not None
        assert attempt.status is AttemptStatus.FAILED


# a storage that fails


def test_a_storage_that_fails_every_third_call_or_is_slow_only_delays_checkpoints(new_scene: NewScene) -> None:
    scene = new_scene()
    stage = scene.stage
    with fed(scene) as feeder:
        driver = scene.start("unique")
        stage.running(driver)
        scene.goes_on(driver)
        scene.goes_on(driver, "unique")

        scene.make_storage("every 3")
        for _ in range(3):
            stage.checkpoint(driver)
        assert scene.calls >= 30, "nothing has failed"
        assert "failed: " not in driver.log.read_text(), driver.said()

        scene.make_storage("slow 0.5")
        began = scene.newest()
        slow = stage.checkpoint(driver)
        assert slow.ended_at is not None
        assert slow.ended_at - slow.triggered_at > timedelta(seconds=2)
        assert scene.newest() > began, "the pipeline has waited for the storage"

        scene.make_storage("")
        stage.checkpoint(driver)
        scene.ends_undisturbed(driver, feeder, has_unique=True)


# a store that is not reached


def test_a_store_that_is_away_for_less_than_the_time_to_live_only_delays_the_next_checkpoint(
    new_scene: NewScene, postgresql: str, door: Door
) -> None:
    """The default time to live."""
    scene = new_scene(ttl=60, url=postgresql, driver_url=door.url)
    stage = scene.stage
    with fed(scene) as feeder:
        driver = scene.start("unique")
        stage.running(driver)
        scene.goes_on(driver)
        scene.goes_on(driver, "unique")

        for go_away, seconds in ((door.shut, 12), (door.get_stuck, 5)):
            go_away()
            back_at = time.monotonic() + seconds
            while time.monotonic() < back_at:
                scene.goes_on(driver, batches=1)
            door.open()
            stage.checkpoint(driver)

        assert "pauses its queries" not in driver.log.read_text()
        scene.ends_undisturbed(driver, feeder, has_unique=True)


def test_a_metastore_that_is_away_for_longer_pauses_every_query_until_it_is_back(
    new_scene: NewScene, postgresql: str, door: Door
) -> None:
    scene = new_scene(ttl=8, url=postgresql, driver_url=door.url)
    stage = scene.stage
    with fed(scene) as feeder:
        driver = scene.start("unique")
        stage.running(driver)
        scene.goes_on(driver)
        scene.goes_on(driver, "unique")
        stage.checkpoint(driver)

        door.shut()
        stage.until(lambda: "is paused." in driver.log.read_text(), driver)
        paused_at = scene.newest(), scene.newest("unique")
        time.sleep(2)  # ten times as long as from one batch to the next
        assert (scene.newest(), scene.newest("unique")) == paused_at, "a query went on beside a newer attempt"

        door.open()
        scene.goes_on(driver)
        stage.checkpoint(driver)
        scene.ends_undisturbed(driver, feeder, has_unique=True)
        attempt = stage.attempt()
        assert attempt is not None
        assert attempt.number == 1


def test_a_store_that_comes_back_while_a_query_is_being_paused_finds_it_going_on(
    new_scene: NewScene, postgresql: str, door: Door
) -> None:
    scene = new_scene(ttl=5, url=postgresql, driver_url=door.url)
    stage = scene.stage
    with fed(scene) as feeder:
        driver = scene.start()
        stage.running(driver)
        scene.goes_on(driver)
        (scene.out / "hold").touch()  # to pause a query takes as long as its batch
        door.shut()
        stage.until(lambda: "pauses its queries" in driver.log.read_text(), driver)
        door.open()
        stage.until(lambda: "answers again" in driver.log.read_text(), driver)
        time.sleep(2)  # the agent may do what it likes now
        (scene.out / "hold").unlink()

        scene.goes_on(driver)
        stage.checkpoint(driver)
        scene.ends_undisturbed(driver, feeder)


def test_a_driver_that_was_replaced_while_it_did_not_reach_the_store_stops_and_says_so(
    new_scene: NewScene, postgresql: str, door: Door
) -> None:
    scene = new_scene(ttl=5, url=postgresql, driver_url=door.url)
    stage = scene.stage
    with fed(scene):
        driver = scene.start("unique")
        stage.running(driver)
        scene.goes_on(driver)
        scene.goes_on(driver, "unique")
        stage.checkpoint(driver)

        door.shut()
        restored = restore(stage.context, NAME, RestoreOptions(take_over=True))
        assert restored.attempt.number == 2
        written = outputs(scene.out / "totals")  # a newer attempt may write from here on
        stage.until(lambda: "is paused." in driver.log.read_text(), driver)
        assert outputs(scene.out / "totals") == written, "the old driver writes beside the new one"
        door.open()

        assert driver.wait(60) != 0
        assert "Attempt 1 of orders was replaced by a newer one" in driver.log.read_text()
        assert outputs(scene.out / "totals") == written


def test_a_driver_that_is_replaced_in_the_middle_of_a_checkpoint_stops_before_the_new_one_may_start(
    new_scene: NewScene,
) -> None:
    scene = new_scene(ttl=8)
    stage = scene.stage
    with fed(scene):
        driver = scene.start()
        stage.running(driver)
        scene.goes_on(driver)
        stage.checkpoint(driver)
        scene.make_storage("slow 4")
        ref = stage.trigger().ref
        stage.until(lambda: stage.store.checkpoints.get(ref).phase is Phase.IN_PROGRESS, driver)

        restored = restore(stage.context, NAME, RestoreOptions(take_over=True))
        assert restored.attempt.number == 2
        written = outputs(scene.out / "totals")

        assert driver.wait() != 0
        assert "Attempt 1 of orders was replaced by a newer one" in driver.log.read_text()
        assert outputs(scene.out / "totals") == written, "the old driver wrote beside the new one"
        late = {each["outcome"] for each in stage.store.acks.evidence(ref)}
        assert late == {"fenced"}, "what its tasks acknowledged afterwards is kept as evidence, and changes nothing"


# Spark clears up


def test_checkpoints_race_with_sparks_maintenance_and_are_complete_or_say_which_setting_to_raise(
    new_scene: NewScene,
) -> None:
    """With 1, a batch that is planned takes away what a start after the one before needs: it takes a quiet moment."""
    scene = new_scene()
    stage = scene.stage
    with fed(scene) as feeder:
        driver = scene.start(conf=_hasty(retain=2))
        stage.running(driver)
        scene.goes_on(driver)
        scene.make_storage("slow 0.2")
        completed = _race(scene, driver, checkpoints=4)
        assert completed, driver.said()
        scene.make_storage("")
        scene.goes_on(driver)
        driver.kill()
        stage.delete_work(1)

        assert stage.restore().attempt.restored_from == completed[-1].ref.id
        again = scene.start(conf=_hasty(retain=1))
        scene.goes_on(again)
        _race(scene, again, checkpoints=4)
        scene.ends_undisturbed(again, feeder)
        stage.checkpoint(again)


def _hasty(*, retain: int) -> dict[str, str]:
    return {
        "spark.sql.streaming.minBatchesToRetain": str(retain),
        "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
        "spark.sql.streaming.fileSource.log.compactInterval": "2",
        "spark.sql.streaming.fileSource.log.cleanupDelay": "0",
    }


def _race(scene: Scene, driver: Driver, *, checkpoints: int) -> list[Checkpoint]:
    """Take some while batches run, and say which completed; those that did not must say what would help."""
    ended = []
    for _ in range(checkpoints):
        ended.append(scene.ended(scene.stage.trigger().ref))
        scene.goes_on(driver, batches=1)
    failures = [each.failure for each in ended if each.phase is not Phase.COMPLETED]
    assert all(failure is not None and "minBatchesToRetain" in failure.message for failure in failures), failures
    return [each for each in ended if each.phase is Phase.COMPLETED]


# drivers that meet


def test_of_two_drivers_of_one_attempt_one_runs_and_others_end_and_name_it(new_scene: NewScene) -> None:
    scene = new_scene()
    stage = scene.stage
    planned = restore(stage.context, NAME).attempt
    with fed(scene) as feeder:
        both = [scene.start(conf={"spark.ckpt.attempt": str(planned.number)}) for _ in range(2)]
        stage.until(lambda: any(driver.has_ended for driver in both))
        loser, winner = sorted(both, key=lambda driver: not driver.has_ended)
        running = stage.running(winner)
        assert loser.wait() != 0
        assert f"was claimed by another driver: {running.application_id} on {running.host}" in _last_error(loser)

        third = scene.start()
        assert third.wait() != 0
        assert f"Attempt {planned.number} of orders is alive on {running.host}" in _last_error(third)

        scene.goes_on(winner)
        stage.checkpoint(winner)
        scene.ends_undisturbed(winner, feeder)
        assert stage.attempt() is not None
        assert [each.status for each in stage.store.attempts.of(NAME)] == [AttemptStatus.RUNNING]


# secrets


def test_the_stores_password_is_in_no_log_no_command_line_and_no_page_of_spark(
    new_scene: NewScene, postgresql: str, door: Door
) -> None:
    scene = new_scene(url=postgresql)
    stage = scene.stage
    logged = stage.folder / "events"
    logged.mkdir()
    talkative = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": logged.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
    }
    with fed(scene):
        driver = scene.start(conf=talkative, secrets={"spark.ckpt.metastore.secret": door.url})
        stage.running(driver)
        scene.goes_on(driver)
        stage.checkpoint(driver)
        door.shut()
        stage.until(lambda: "did not answer" in driver.log.read_text(), driver)
        door.open()
        stage.checkpoint(driver)

        application = json.loads((scene.out / "application.json").read_text())
        address = f"{application['ui']}/api/v1/applications/{application['id']}/environment"
        environment = _get(address)
        commands = list(_commands(driver).values())

        page = _get(f"{application['ui']}/environment/")

    assert "spark.ckpt.metastore.secret" in environment
    assert any("SparkSubmit" in command for command in commands)
    written = [file.read_text() for file in logged.rglob("*") if file.is_file()]
    assert any("SparkListenerEnvironmentUpdate" in text for text in written)
    for told in (environment, page, driver.log.read_text(), *commands, *written):
        assert PASSWORD not in told


def _find(driver: Driver, program: str) -> list[int]:
    return [pid for pid, command in _commands(driver).items() if program in command]


def _commands(driver: Driver) -> dict[int, str]:
    """The command line of every process of a driver's session: itself, its JVMs and their Python workers."""
    return {process.pid: process.command() for process in driver.processes()}


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _spark_home(folder: Path) -> Path:
    """Spark as it is installed, with a `work` folder of its own: a local cluster writes there."""
    home = folder / "spark-home"
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        if each.name != "work":
            (home / each.name).symlink_to(each)
    return home


def _last_error(driver: Driver) -> str:
    """The line that a person reads at the end of a Python program that has failed."""
    return [line for line in driver.log.read_text().splitlines() if ".errors." in line][-1]


def _get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=120) as answer:
        text: str = answer.read().decode()
        return text
