"""The `ckpt` command as people and scripts use it: a home in a folder, a hand-driven attempt, real files."""

import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.cli import ExitCode, build_parser, main
from airflow_provider_ckpt.coordinator import follow as following
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.metastore import Metastore, open_metastore
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.errors import Unreachable
from airflow_provider_ckpt.protocol.paths import file_path
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import (
    Ack,
    AttemptStatus,
    Capture,
    Consumed,
    Cut,
    FileRef,
    Participant,
    ParticipantKind,
    Ref,
    TriggerRequest,
)
from airflow_provider_ckpt.storage import LocalStorage

STATE = ("totals/state/0", "totals/state/1")
SINK = "totals/sink"
TOTALS = Graph((Query(name="totals"),))
PASSWORD = "s3cr3t-Pass"
NOWHERE = f"postgresql://ckpt:{PASSWORD}@127.0.0.1:1/x"


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    def __str__(self) -> str:
        return self.out + self.err


Ckpt = Callable[..., Run]


class Driver:
    """What a Spark application would do, by hand."""

    def __init__(self, home: Path) -> None:
        self.store: Metastore = open_metastore(f"sqlite:///{home / 'metastore.db'}")
        self.storage = LocalStorage(home / "storage")
        self.number = 0

    def start(self, graph: Graph = TOTALS) -> None:
        self.number = self.store.pipelines.get("orders").current_attempt or 0
        self.store.attempts.claim(
            "orders", self.number, f"driver-{self.number}", graph, application_id=f"app-{self.number}", host="worker-1"
        )

    def fail(self, why: str = "out of memory") -> None:
        self.store.attempts.end("orders", self.number, AttemptStatus.FAILED, actor="driver", failure=why)

    def capture(self, ref: Ref, *, with_sink: bool = False) -> None:
        members = [Participant(name=name) for name in STATE]
        members += [Participant(name=SINK, kind=ParticipantKind.SINK)] if with_sink else []
        capture = Capture(cut=Cut(query="totals", batch=ref.id * 10), participants=tuple(members))
        self.store.barriers.capture(ref, self.number, capture, host="worker-1")

    def acknowledge(self, ref: Ref, *participants: str) -> None:
        acks = [self._ack(ref, name) for name in participants or STATE]
        self.store.acks.acknowledge(ref, self.number, acks, host="worker-2")

    def _ack(self, ref: Ref, name: str) -> Ack:
        data = f"{name} of {ref} ".encode() * 100
        path = file_path(self.number, ref.id, f"{name}/1.delta")
        self.storage.create(f"{ref.pipeline}/{path}", data)
        file = FileRef(path=path, name=f"{name}/1.delta", size=len(data), sha256=sha256(data).hexdigest())
        return Ack(participant=name, files=(file,), new_bytes=len(data), timings={"copy": 0.25, "hash": 0.5})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CKPT_METASTORE", "CKPT_STORAGE", "FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CKPT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TZ", "Europe/Berlin")
    return tmp_path / "home"


once = cache(build_parser)  # a parser has no memory, and making one is half of a short command's time


@pytest.fixture
def ckpt(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ckpt:
    monkeypatch.setattr("airflow_provider_ckpt.cli.build_parser", once)

    def run(*words: str) -> Run:
        capsys.readouterr()
        code = main(list(words))
        return Run(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the pipeline `orders` and its first attempt, made once and copied for each test."""
    home = tmp_path_factory.mktemp("planned") / "home"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CKPT_HOME", str(home))
        assert main(["init", "orders"]) == 0
        assert main(["restore", "orders"]) == 0
    return home


@pytest.fixture
def driver(planned: Path, home: Path) -> Iterator[Driver]:
    """A running attempt of the pipeline `orders`."""
    shutil.copytree(planned, home)
    driver = Driver(home)
    driver.start()
    yield driver
    driver.store.engine.sa.dispose()


@pytest.fixture
def take(driver: Driver) -> Callable[..., Ref]:
    """Take a checkpoint, or a savepoint, to its end."""
    context = Context(store=driver.store, storage=driver.storage, actor="fixture", workers=1)

    def completed(savepoint: str | None = None) -> Ref:
        key = str(time.monotonic_ns())
        request = TriggerRequest(pipeline="orders", key=key, requested_by="fixture", savepoint=savepoint)
        checkpoint = driver.store.barriers.trigger(request).checkpoint
        assert checkpoint is not None
        driver.capture(checkpoint.ref)
        driver.acknowledge(checkpoint.ref)
        assert complete(context, checkpoint.ref).phase is Phase.COMPLETED
        return checkpoint.ref

    return completed


def damage(home: Path, ref: Ref) -> None:
    """Change one byte of one file, at the same size."""
    [file, *_] = sorted((home / "storage" / "orders" / "files").rglob(f"{ref.id}/totals/state/0/1.delta"))
    data = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(b"!" + data[1:])


def everything(home: Path) -> tuple[str, dict[str, bytes]]:
    """A dump of the store, and every stored file."""
    with sqlite3.connect(home / "metastore.db") as connection:
        dump = "\n".join(connection.iterdump())
    connection.close()
    stored = (path for path in (home / "storage").rglob("*") if path.is_file())
    return dump, {str(path): path.read_bytes() for path in stored}


# the beginning


def test_init_makes_the_store_and_pipelines_and_leaves_existing_ones_alone(ckpt: Ckpt, home: Path) -> None:
    first = ckpt("init", "orders", "--set", "interval=1m", "keep_last=3")
    assert first.code == 0
    assert "Pipeline orders was created" in first.out
    assert home.stat().st_mode & 0o777 == 0o700
    second = ckpt("init", "orders", "payments", "--set", "interval=9m", "--json")
    assert second.document["created"] == ["payments"]
    assert second.document["existing"] == ["orders"]
    assert second.document["is_upgraded"] is False
    settings = ckpt("pipelines", "orders", "--json").document["pipeline"]["settings"]
    assert settings["interval"] == "1m"
    assert settings["retention"]["last"] == 3


def test_init_without_a_pipeline_makes_the_store_alone(ckpt: Ckpt) -> None:
    assert ckpt("init").code == 0
    assert "There are no pipelines" in ckpt("pipelines").out


@pytest.mark.parametrize(
    "words",
    [
        ["init", "or/ders"],
        ["init", "--set", "interval=1m"],
        ["init", "orders", "--set", "interval=soon"],
        ["init", "orders", "--set", "keep_last=0"],
        ["init", "orders", "--set", "color=red"],
        ["init", "orders", "--set", "interval"],
    ],
)
def test_what_can_not_be_initialised_is_misused_and_makes_nothing(ckpt: Ckpt, home: Path, words: list[str]) -> None:
    run = ckpt(*words)
    assert run.code == ExitCode.MISUSED
    assert run.err.count("\n") == 1
    assert not home.exists()


def test_commands_before_init_say_so_and_make_no_empty_store(ckpt: Ckpt, home: Path) -> None:
    home.mkdir()
    run = ckpt("list", "orders")
    assert run.code == ExitCode.NOT_FOUND
    assert "ckpt init" in run.err
    assert list(home.iterdir()) == []


# the life of a checkpoint


def test_a_checkpoint_is_triggered_followed_completed_listed_and_shown(ckpt: Ckpt, driver: Driver) -> None:
    started = ckpt("trigger", "orders", "--no-wait", "--key", "k", "--reason", "before lunch", "--actor", "ada@desk")
    assert started.code == 0
    assert "orders/1 was triggered" in started.out
    ref = Ref("orders", 1)
    driver.capture(ref)
    driver.acknowledge(ref, STATE[0])
    halfway = ckpt("show", "orders/1")
    assert "1 of 2" in halfway.out
    assert halfway.out.index(STATE[1]) < halfway.out.index(STATE[0]), "who is late comes first"
    driver.acknowledge(ref, STATE[1])
    ended = ckpt("trigger", "orders", "--key", "k")
    assert ended.code == 0
    assert "orders/1 is COMPLETED" in ended.out
    assert ended.err == "", "no progress where there is no terminal"

    shown = ckpt("show", "orders/1")
    for text in (
        "COMPLETED",
        "ada@desk: before lunch",
        "2 of 2",
        "copy 0.25s, hash 0.5s",
        "worker-2",
        "checkpoint.frozen",
    ):
        assert text in shown.out
    listed = ckpt("list", "orders", "--json").document
    assert [each["phase"] for each in listed["checkpoints"]] == ["COMPLETED"]
    assert listed["checkpoints"][0]["triggered_at"].endswith("Z")
    assert listed["next_before"] is None


def test_following_completes_while_an_attempt_acknowledges_beside_it(ckpt: Ckpt, driver: Driver, home: Path) -> None:
    def work() -> None:
        beside = Driver(home)
        beside.number = driver.number
        while (flying := beside.store.checkpoints.in_flight("orders")) is None:
            time.sleep(0.01)
        beside.capture(flying.ref, with_sink=True)
        beside.acknowledge(flying.ref, *STATE, SINK)
        while beside.store.checkpoints.get(flying.ref).phase is not Phase.COMMITTING:
            time.sleep(0.01)
        beside.store.sinks.committed(flying.ref, SINK, beside.number)
        beside.store.engine.sa.dispose()

    agent = threading.Thread(target=work)
    agent.start()
    run = ckpt("trigger", "orders", "--wait", "10", "--json")
    agent.join()
    assert run.code == 0
    assert run.document["is_new"] is True
    assert run.document["checkpoint"]["phase"] == "COMPLETED"
    assert run.document["checkpoint"]["decision"]["new_bytes"] > 0


def test_every_trigger_is_a_new_one_unless_the_key_says_otherwise(ckpt: Ckpt, driver: Driver) -> None:
    first = ckpt("trigger", "orders", "--no-wait", "--key", "k", "--json").document
    again = ckpt("trigger", "orders", "--no-wait", "--key", "k", "--json").document
    assert (first["is_new"], again["is_new"]) == (True, False)
    assert first["checkpoint"]["id"] == again["checkpoint"]["id"] == 1
    ckpt("abort", "orders/1")
    assert ckpt("trigger", "orders", "--no-wait", "--json").document["checkpoint"]["id"] == 2
    ckpt("abort", "orders/2")
    retried = ckpt("trigger", "orders", "--no-wait", "--key", "k", "--json").document["checkpoint"]
    assert (retried["id"], retried["retry_of"]) == (3, 1)


def test_a_savepoint_is_taken_and_followed_by_name(ckpt: Ckpt, driver: Driver) -> None:
    ckpt("savepoint", "orders", "monday", "--key", "k", "--no-wait")
    driver.capture(Ref("orders", 1))
    driver.acknowledge(Ref("orders", 1))
    ended = ckpt("savepoint", "orders", "monday", "--key", "k", "--json").document["checkpoint"]
    assert (ended["phase"], ended["kind"], ended["name"]) == ("COMPLETED", "savepoint", "monday")
    assert ended["decision"]["manifest_path"] == "orders/savepoints/monday.1/manifest"


def test_a_deadline_that_passes_fails_the_checkpoint_and_prints_who_is_to_blame(ckpt: Ckpt, driver: Driver) -> None:
    ckpt("pipelines", "orders", "--set", "timeout=300ms")
    started = ckpt("trigger", "orders", "--no-wait", "--key", "k")
    driver.capture(Ref("orders", 1))
    driver.acknowledge(Ref("orders", 1), STATE[0])
    run = ckpt("trigger", "orders", "--key", "k")
    assert started.code == 0
    assert run.code == ExitCode.CHECKPOINT_FAILED
    assert "timed-out" in run.out
    assert STATE[1] in run.out
    assert STATE[0] not in run.out
    shown = ckpt("show", "orders/1", "--json").document
    assert shown["failure"]["blame"]["named"][0]["name"] == STATE[1]
    assert "Missing: 1" in ckpt("show", "orders/1").out


def test_waiting_no_longer_leaves_the_checkpoint_in_flight(ckpt: Ckpt, driver: Driver) -> None:
    run = ckpt("trigger", "orders", "--wait", "0")
    assert run.code == ExitCode.TRY_AGAIN
    assert "still TRIGGERED" in run.out
    assert ckpt("list", "orders", "--phase", "triggered", "--json").document["checkpoints"][0]["id"] == 1


@pytest.mark.parametrize("words", [["--json"], []])
def test_a_skipped_trigger_says_why_and_has_its_own_code(ckpt: Ckpt, driver: Driver, words: list[str]) -> None:
    ckpt("trigger", "orders", "--no-wait")
    run = ckpt("trigger", "orders", *words)
    assert run.code == ExitCode.SKIPPED
    assert "in-flight" in run.out
    assert "trigger.skipped" in ckpt("show", "orders").out


def test_a_trigger_when_due_respects_the_interval(ckpt: Ckpt, take: Callable[..., Ref]) -> None:
    take()
    assert ckpt("trigger", "orders", "--when-due", "--json").document["skipped"] == "not-due"


def test_a_checkpoint_is_aborted_only_before_the_decision(ckpt: Ckpt, take: Callable[..., Ref]) -> None:
    take()
    ckpt("trigger", "orders", "--no-wait")
    aborted = ckpt("abort", "orders/2", "--reason", "wrong day", "--json")
    assert aborted.code == 0
    assert aborted.document["failure"]["reason"] == "aborted"
    assert aborted.document["failure"]["message"] == "wrong day"
    for ref, phase in (("orders/1", "COMPLETED"), ("orders/2", "FAILED")):
        again = ckpt("abort", ref)
        assert again.code == ExitCode.REFUSED
        assert phase in again.err


def test_a_commit_that_hangs_is_resolved_by_a_person(ckpt: Ckpt, driver: Driver) -> None:
    ckpt("trigger", "orders", "--no-wait", "--key", "k")
    ref = Ref("orders", 1)
    driver.capture(ref, with_sink=True)
    driver.acknowledge(ref, *STATE, SINK)
    assert ckpt("trigger", "orders", "--key", "k", "--wait", "0").code == ExitCode.TRY_AGAIN
    driver.store.sinks.not_committed(ref, SINK, 1, "the table is locked", is_unknown=True)
    shown = " ".join(ckpt("show", "orders/1").out.split())
    assert "committed, outcome unknown" in shown
    assert f"{SINK} may or may not have published" in shown
    assert f"`ckpt resolve orders/1 --sink {SINK} --as committed|abandoned --reason …`" in shown
    assert "the table is locked" in shown
    assert "decided" in ckpt("abort", "orders/1").err
    wrong = ckpt("resolve", "orders/1", "--sink", "other", "--as", "committed", "--reason", "seen")
    assert wrong.code == ExitCode.NOT_FOUND
    assert SINK in wrong.err
    done = ckpt("resolve", "orders/1", "--sink", SINK, "--as", "abandoned", "--reason", "table was dropped")
    assert done.code == 0
    assert "orders/1 is COMPLETED" in done.out
    assert "table was dropped" in ckpt("show", "orders/1").out


def test_following_goes_on_after_the_sinks_have_committed(ckpt: Ckpt, driver: Driver) -> None:
    ckpt("trigger", "orders", "--no-wait", "--key", "k")
    ref = Ref("orders", 1)
    driver.capture(ref, with_sink=True)
    driver.acknowledge(ref, *STATE, SINK)
    assert "still COMMITTING" in ckpt("trigger", "orders", "--key", "k", "--wait", "0").out
    driver.store.sinks.committed(ref, SINK, driver.number)
    assert ckpt("trigger", "orders", "--key", "k", "--wait", "0").code == 0


def test_resolving_leaves_the_marker_that_a_rebuild_needs(ckpt: Ckpt, driver: Driver, home: Path) -> None:
    ckpt("trigger", "orders", "--no-wait", "--key", "k")
    ref = Ref("orders", 1)
    driver.capture(ref, with_sink=True)
    driver.acknowledge(ref, *STATE, SINK)
    ckpt("trigger", "orders", "--key", "k", "--wait", "0")
    marker = home / "storage" / "orders" / "checkpoints" / "1" / "decided"
    marker.unlink()  # as if whoever decided had died just then
    assert ckpt("resolve", "orders/1", "--sink", SINK, "--as", "committed", "--reason", "seen").code == 0
    assert marker.exists()


def test_evidence_of_acks_that_changed_nothing_is_counted(ckpt: Ckpt, driver: Driver, take: Callable[..., Ref]) -> None:
    ref = take()
    driver.store.acks.acknowledge(ref, 1, [Ack(participant="totals/stranger")])
    driver.store.acks.acknowledge(ref, 0, [Ack(participant=STATE[0])])
    assert ckpt("show", "orders/1", "--json").document["evidence"] == {"fenced": 1, "unknown": 1}
    assert "1 fenced, 1 unknown" in ckpt("show", "orders/1").out


def test_cuts_and_what_is_in_flight_between_queries_are_shown(ckpt: Ckpt, driver: Driver) -> None:
    driver.fail()
    ckpt("restore", "orders", "--allow-fresh-start")
    writer, reader = Query(name="clean", writes=frozenset({"topic"})), Query(name="totals", reads=frozenset({"topic"}))
    driver.start(Graph((writer, reader)))
    ckpt("trigger", "orders", "--no-wait")
    ref = Ref("orders", 1)
    consumed = (Consumed(channel="topic", writer="clean", batch=7),)
    cut = Cut(query="totals", batch=3, consumed=consumed)
    driver.store.barriers.capture(ref, 2, Capture(cut=cut, participants=(Participant(name="totals/a"),)))
    assert "no cut" not in ckpt("show", "orders/1").out
    driver.store.barriers.capture(
        ref, 2, Capture(cut=Cut(query="clean", batch=9), participants=(Participant(name="clean/a"),))
    )
    shown = ckpt("show", "orders/1")
    assert "topic up to batch 7 of clean" in shown.out
    assert "batches 8 to 9" in shown.out
    assert ckpt("show", "orders/1", "--json").document["in_flight"] == [
        {"channel": "topic", "writer": "clean", "reader": "totals", "after": 7, "upto": 9}
    ]


def test_participants_are_limited_on_demand(ckpt: Ckpt, take: Callable[..., Ref]) -> None:
    take()
    shown = ckpt("show", "orders/1", "--participants", "1")
    assert "(1 of 2)" in shown.out
    assert len(ckpt("show", "orders/1", "--participants", "0", "--json").document["slowest_participants"]) == 0


# history


def test_the_history_is_paged_and_marked(ckpt: Ckpt, home: Path, take: Callable[..., Ref]) -> None:
    refs = [take(), take("before-upgrade"), take()]
    ckpt("pins", "add", "orders/3", "--reason", "audit")
    damage(home, refs[0])
    ckpt("verify", "orders")
    first = ckpt("list", "orders", "--limit", "2")
    assert "--before 2" in first.out
    assert "savepoint before-upgrade, validated" in first.out
    assert "pinned, validated" in first.out
    second = ckpt("list", "orders", "--limit", "2", "--before", "2")
    assert "corrupt" in second.out
    assert "--before" not in second.out


def test_a_savepoint_is_found_by_its_name_and_its_name_is_taken(ckpt: Ckpt, take: Callable[..., Ref]) -> None:
    take("before-upgrade")
    assert ckpt("show", "orders/before-upgrade", "--json").document["id"] == 1
    taken = ckpt("savepoint", "orders", "before-upgrade", "--no-wait")
    assert taken.code == ExitCode.MISUSED
    assert "already" in taken.err
    assert ckpt("savepoint", "orders", "17", "--no-wait").code == ExitCode.MISUSED
    assert ckpt("savepoint", "orders", "../x", "--no-wait").code == ExitCode.MISUSED


def test_the_pipelines_are_listed_with_their_health(ckpt: Ckpt, driver: Driver, take: Callable[..., Ref]) -> None:
    take()
    well = ckpt("pipelines", "--json").document["pipelines"][0]
    assert well["is_well"] is True
    assert well["newest_completed"]["id"] == 1
    assert well["newest_age_seconds"] >= 0
    driver.fail("out of memory")
    assert "attempt 1 has failed: out of memory" in ckpt("pipelines").out
    shown = ckpt("show", "orders")
    assert "out of memory" in shown.out
    assert "app-1" in shown.out


def test_settings_and_the_desired_state_are_changed(ckpt: Ckpt, driver: Driver) -> None:
    changed = ckpt("pipelines", "orders", "--set", "interval=2m", "--stop", "--reason", "holidays", "--json")
    assert changed.document["pipeline"]["settings"]["interval"] == "2m"
    assert changed.document["pipeline"]["desired_state"] == "stopped"
    assert "holidays" in ckpt("show", "orders").out
    assert ckpt("trigger", "orders", "--json").document["skipped"] == "stopped"
    assert ckpt("pipelines", "orders", "--start", "--json").document["pipeline"]["desired_state"] == "running"
    assert ckpt("pipelines", "--stop").code == ExitCode.MISUSED
    assert ckpt("pipelines", "orders", "--set", "keep_last=0").code == ExitCode.MISUSED
    assert ckpt("pipelines", "orders", "--start", "--stop").code == ExitCode.MISUSED


# pins


def test_pins_are_added_listed_and_removed_by_owner(ckpt: Ckpt, take: Callable[..., Ref]) -> None:
    take()
    assert ckpt("pins", "add", "orders/1", "--reason", "audit", "--owner", "ada").code == 0
    assert ckpt("pins", "list", "orders", "--json").document["pins"][0]["owner"] == "ada"
    assert "audit" in ckpt("pins", "list", "orders").out
    assert ckpt("pins", "remove", "orders/1").code == ExitCode.NOT_FOUND
    assert ckpt("pins", "remove", "orders/1", "--owner", "ada").code == 0
    assert "no pins" in ckpt("pins", "list", "orders").out
    assert ckpt("pins", "add", "orders/1", "--reason", "x", "--owner", "restore:9").code == ExitCode.MISUSED
    assert ckpt("pins", "add", "orders/9", "--reason", "x").code == ExitCode.NOT_FOUND


# cleanup


def test_a_cleanup_says_what_went_and_what_stays_and_why(ckpt: Ckpt, home: Path, take: Callable[..., Ref]) -> None:
    ckpt("pipelines", "orders", "--set", "keep_last=1")
    for _ in range(3):
        take()
    ckpt("pins", "add", "orders/1", "--reason", "audit")
    before = everything(home)
    planned = ckpt("cleanup", "orders", "--dry-run", "--json")
    assert planned.document["discarded"] == [2]
    assert planned.document["dry_run"] is True
    assert "would go" in ckpt("cleanup", "orders", "--dry-run").out
    assert everything(home) == before, "a dry run changes nothing"
    done = ckpt("cleanup", "orders")
    assert done.code == 0
    assert "1 checkpoint discarded, 2 files" in done.out
    assert sorted(ckpt("cleanup", "orders", "--json").document["kept"]) == ["1", "3"]
    assert ckpt("list", "orders", "--json").document["checkpoints"][1]["phase"] == "DISCARDED"


def test_savepoints_go_only_by_wish_and_pinned_ones_not_even_then(
    ckpt: Ckpt, home: Path, take: Callable[..., Ref]
) -> None:
    take("old")
    take()
    ckpt("pins", "add", "orders/old", "--reason", "audit")
    before = everything(home)
    for dry_run in (["--dry-run"], []):
        refused = ckpt("cleanup", "orders", "--discard", "old", *dry_run)
        assert refused.code == ExitCode.REFUSED
        assert "audit" in refused.err
    assert everything(home) == before
    ckpt("pins", "remove", "orders/old")
    gone = ckpt("cleanup", "orders", "--discard", "orders/old", "--json")
    assert gone.document["discarded"] == [1]
    assert ckpt("cleanup", "orders", "--discard", "9").code == ExitCode.NOT_FOUND
    assert ckpt("cleanup", "orders", "--discard", "payments/2").code == ExitCode.MISUSED


def test_a_cleanup_waits_for_a_checkpoint_in_flight(ckpt: Ckpt, driver: Driver) -> None:
    ckpt("trigger", "orders", "--no-wait")
    assert ckpt("cleanup", "orders").code == ExitCode.TRY_AGAIN


def test_strange_and_missing_files_are_reported(ckpt: Ckpt, home: Path, take: Callable[..., Ref]) -> None:
    take()
    take()
    (home / "storage" / "orders" / "strange").write_text("?")
    next((home / "storage" / "orders" / "files" / "1" / "1").rglob("*.delta")).unlink()
    run = ckpt("cleanup", "orders", "--json").document
    assert list(run["quarantined"]) == ["orders/strange"]
    assert "is missing" in run["missing"]["1"][0]
    assert "orders/strange" in ckpt("cleanup", "orders").out


# verify


def test_verify_tells_the_intact_from_the_corrupt_by_its_exit_code(
    ckpt: Ckpt, home: Path, take: Callable[..., Ref]
) -> None:
    assert "nothing to verify" in ckpt("verify", "orders").out
    refs = [take(), take()]
    assert ckpt("verify", "orders", "orders/1").code == 0
    damage(home, refs[1])
    run = ckpt("verify", "orders")
    assert run.code == ExitCode.CORRUPT
    assert run.out.count("intact") == 1
    assert "its manifest says" in run.out
    document = ckpt("verify", "orders/2", "--json").document
    assert document["is_intact"] is False
    assert [each["ref"] for each in document["verified"]] == ["orders/2"]
    assert ckpt("verify", "orders/1").code == 0
    (home / "storage" / "orders" / "checkpoints" / "1" / "manifest").unlink()
    assert "is missing" in ckpt("verify", "orders/1").out


def test_only_completed_checkpoints_are_verified(ckpt: Ckpt, driver: Driver) -> None:
    ckpt("trigger", "orders", "--no-wait")
    assert ckpt("verify", "orders/1").code == ExitCode.REFUSED
    assert ckpt("verify", "orders").code == 0


# restore


def test_a_failed_attempt_is_restored_from_the_newest_checkpoint(
    ckpt: Ckpt, driver: Driver, home: Path, take: Callable[..., Ref]
) -> None:
    take()
    take()
    driver.fail()
    before = everything(home)
    planned = ckpt("restore", "orders", "--dry-run", "--json")
    assert planned.document["checkpoint"]["id"] == 2
    assert planned.document["attempt"] is None
    assert everything(home) == before, "a dry run changes nothing"
    done = ckpt("restore", "orders")
    assert done.code == 0
    assert "Attempt 2 of orders is planned" in done.out
    assert "orders/2" in done.out
    assert "replays" in done.out
    assert "checkpoint 2" in ckpt("show", "orders").out


def test_a_dry_run_says_that_the_manifest_of_its_choice_is_gone(
    ckpt: Ckpt, driver: Driver, home: Path, take: Callable[..., Ref]
) -> None:
    take()
    take()
    driver.fail()
    assert ckpt("restore", "orders", "--dry-run", "--json").document["problem"] is None
    (manifest,) = (home / "storage" / "orders" / "checkpoints" / "2").glob("manifest*")
    manifest.unlink()
    said = ckpt("restore", "orders", "--dry-run")
    assert "is missing. The restore would find that out, and not start from there." in said.out
    assert ckpt("restore", "orders", "--to", "2").code != 0, "as it said"
    assert ckpt("restore", "orders", "--json").document["checkpoint"]["id"] == 1


def test_a_rewind_leaves_newer_checkpoints_abandoned(ckpt: Ckpt, driver: Driver, take: Callable[..., Ref]) -> None:
    take("base")
    take()
    driver.fail()
    done = ckpt("restore", "orders", "--to", "base", "--json").document
    assert done["checkpoint"]["id"] == 1
    assert done["attempt"]["number"] == 2
    assert done["attempt"]["restored_from"] == 1
    [newer, base] = ckpt("list", "orders", "--json").document["checkpoints"]
    assert newer["marks"] == ["abandoned"]
    assert base["marks"] == ["savepoint base", "validated"]


def test_a_restore_passes_over_the_corrupt_unless_it_must_not(
    ckpt: Ckpt, driver: Driver, home: Path, take: Callable[..., Ref]
) -> None:
    take()
    damage(home, take())
    ckpt("verify", "orders")
    driver.fail()
    assert ckpt("restore", "orders", "--no-fallback").code == ExitCode.REFUSED
    assert ckpt("restore", "orders", "--to", "2").code == ExitCode.REFUSED
    done = ckpt("restore", "orders", "--json").document
    assert done["checkpoint"]["id"] == 1
    assert list(done["price"]["passed_over"]) == ["2"]


def test_an_attempt_that_is_alive_is_not_restored_over(ckpt: Ckpt, driver: Driver, take: Callable[..., Ref]) -> None:
    take()
    refused = ckpt("restore", "orders")
    assert refused.code == ExitCode.REFUSED
    assert "--take-over" in refused.err
    assert "is alive" in ckpt("restore", "orders", "--dry-run").out
    assert ckpt("restore", "orders", "--take-over", "--old-attempt-is-dead").code == 0


def test_a_time_without_a_zone_is_local_and_the_zone_is_said(
    ckpt: Ckpt, driver: Driver, take: Callable[..., Ref]
) -> None:
    take()
    driver.fail()
    early = ckpt("restore", "orders", "--as-of", "2020-06-01T12:00", "--dry-run")
    assert early.code == ExitCode.REFUSED
    late = ckpt("restore", "orders", "--as-of", "2120-06-01 12:00", "--dry-run")
    assert "Europe/Berlin" in late.out
    assert "2120-06-01 10:00:00 UTC" in late.out
    document = ckpt("restore", "orders", "--as-of", "2120-06-01T12:00Z", "--dry-run", "--json").document
    assert (document["as_of"], document["as_of_zone"]) == ("2120-06-01T12:00:00.000000Z", "UTC")
    assert document["checkpoint"]["id"] == 1
    for nonsense in ("yesterday", "P1D", "2026-13-01", ""):
        assert ckpt("restore", "orders", "--as-of", nonsense).code == ExitCode.MISUSED
    assert ckpt("restore", "orders", "--as-of", "now", "--to", "1").code == ExitCode.MISUSED


def test_a_restore_of_what_is_not_there_is_not_found(ckpt: Ckpt, driver: Driver) -> None:
    driver.fail()
    assert ckpt("restore", "orders", "--to", "9").code == ExitCode.NOT_FOUND
    assert ckpt("restore", "orders", "--to", "nothing").code == ExitCode.NOT_FOUND
    assert ckpt("restore", "nobody", "--dry-run").code == ExitCode.NOT_FOUND
    assert ckpt("restore", "orders").code == ExitCode.REFUSED, "a fresh start is never silent"
    assert ckpt("restore", "orders", "--allow-fresh-start").code == 0


# rebuild


def test_a_lost_store_is_rebuilt_from_the_storage(
    ckpt: Ckpt, driver: Driver, home: Path, take: Callable[..., Ref]
) -> None:
    take()
    take("keep-me")
    driver.store.engine.sa.dispose()
    for file in home.glob("metastore.db*"):
        file.unlink()
    ckpt("init")
    before = everything(home)
    assert ckpt("rebuild", "--dry-run", "--json").document["added"] == ["orders/1", "orders/2"]
    assert "would be added" in ckpt("rebuild", "--dry-run").out
    assert everything(home) == before, "a dry run changes nothing"
    assert "2 were added" in ckpt("rebuild", "orders").out
    assert ckpt("rebuild", "--json").document["added"] == []
    assert ckpt("verify", "orders").code == 0
    assert ckpt("rebuild", "nobody").code == ExitCode.NOT_FOUND
    (home / "storage" / "orders" / "checkpoints" / "1" / "manifest").write_bytes(b"{}")
    assert ckpt("rebuild").code == ExitCode.CORRUPT


# doctor


def test_the_doctor_finds_all_well_and_leaves_nothing_behind(ckpt: Ckpt, driver: Driver, home: Path) -> None:
    before = everything(home)
    run = ckpt("doctor")
    assert run.code == 0
    for name in ("metastore", "migrations", "storage", "clock", "versions"):
        assert f"{name} " in run.out
    assert "nothing depends on it" in run.out
    assert ckpt("doctor", "--json").document["is_well"] is True
    assert everything(home) == before


def test_the_doctor_says_what_to_do_about_a_store_without_tables(ckpt: Ckpt, home: Path) -> None:
    home.mkdir()
    sqlite3.connect(home / "metastore.db").close()
    (home / "metastore.db").touch()
    run = ckpt("doctor")
    assert run.code == ExitCode.MISUSED
    assert "Run `ckpt init`" in run.out


def test_the_doctor_tells_a_broken_store_and_a_broken_storage_apart(
    ckpt: Ckpt, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / "metastore.db").write_bytes(b"this is no database, whatever its name says" * 50)
    (home / "file").touch()
    monkeypatch.setenv("CKPT_STORAGE", str(home / "file"))
    run = ckpt("doctor", "--json")
    status = {each["name"]: each["status"] for each in run.document["checks"]}
    assert status == {
        "metastore": "failed",
        "migrations": "skipped",
        "storage": "failed",
        "clock": "skipped",
        "versions": "ok",
    }
    assert run.code == ExitCode.MISUSED
    assert run.document["is_well"] is False


def test_the_doctor_does_not_hang_on_a_store_that_is_away_and_keeps_its_password(
    ckpt: Ckpt, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPT_METASTORE", NOWHERE)
    began = time.monotonic()
    for words in (["doctor"], ["doctor", "--json"], ["-v", "doctor"]):
        run = ckpt(*words)
        assert run.code == ExitCode.TRY_AGAIN
        assert "CKPT_STORAGE" in run.out, "the storage of a store elsewhere must be named"
        assert PASSWORD not in str(run)
    assert time.monotonic() - began < 5


# failures


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["list", "nobody"], ExitCode.NOT_FOUND),
        (["show", "nobody"], ExitCode.NOT_FOUND),
        (["show", "nobody/1"], ExitCode.NOT_FOUND),
        (["show", "orders/9"], ExitCode.NOT_FOUND),
        (["show", "orders/99999999999999999999"], ExitCode.NOT_FOUND),
        (["show", "orders/nothing"], ExitCode.NOT_FOUND),
        (["show", "orders/"], ExitCode.MISUSED),
        (["show", "/1"], ExitCode.MISUSED),
        (["show", "orders/1/2"], ExitCode.MISUSED),
        (["show", "or ders"], ExitCode.MISUSED),
        (["trigger", "nobody"], ExitCode.NOT_FOUND),
        (["abort", "orders"], ExitCode.MISUSED),
        (["abort", "orders/9"], ExitCode.NOT_FOUND),
        (["verify", "orders/9"], ExitCode.NOT_FOUND),
        (["cleanup", "nobody"], ExitCode.NOT_FOUND),
        (["cleanup", "nobody", "--dry-run"], ExitCode.NOT_FOUND),
        (["restore", "nobody"], ExitCode.NOT_FOUND),
        (["pins", "list", "nobody"], ExitCode.NOT_FOUND),
        (["pipelines", "nobody"], ExitCode.NOT_FOUND),
        (["list", "orders", "--limit", "0"], ExitCode.MISUSED),
        (["list", "orders", "--before", "99999999999999999999"], ExitCode.MISUSED),
        (["list", "orders", "--phase", "DONE"], ExitCode.MISUSED),
        (["resolve", "orders/1", "--sink", "s", "--as", "unknown", "--reason", "x"], ExitCode.MISUSED),
        (["trigger", "orders", "--wait", "soon"], ExitCode.MISUSED),
        (["trigger", "orders", "--wait", "nan"], ExitCode.MISUSED),
        (["trigger", "orders", "--wait", "5", "--no-wait"], ExitCode.MISUSED),
        (["no-such-command"], ExitCode.MISUSED),
        ([], ExitCode.MISUSED),
    ],
)
def test_what_is_not_there_or_makes_no_sense_is_one_sentence_and_a_code(
    ckpt: Ckpt, driver: Driver, home: Path, words: list[str], code: ExitCode
) -> None:
    before = everything(home)
    run = ckpt(*words)
    assert (run.code, run.out) == (code, "")
    assert run.err.count("\n") == 1
    assert "Traceback" not in run.err
    in_json = ckpt(*words, "--json")
    assert in_json.code == code
    assert set(in_json.document) == {"error"}
    assert in_json.document["error"]["message"] == in_json.err.strip()
    assert in_json.document["error"]["kind"] in ("Misused", "NotFound", "Usage")
    assert everything(home) == before


def test_an_unreachable_store_is_said_without_its_password(
    ckpt: Ckpt, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPT_METASTORE", NOWHERE)
    for words in (["pipelines"], ["pipelines", "--json"], ["-v", "pipelines"], ["init", "orders"]):
        run = ckpt(*words)
        assert run.code == ExitCode.TRY_AGAIN
        assert "did not answer" in run.err
        assert PASSWORD not in str(run)
        assert ("Traceback" in run.err) == ("-v" in words)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ckpt@127.0.0.1:1/x?password={PASSWORD}",
        f"postgresql://ckpt:{PASSWORD}@127.0.0.1:port/x",
        f"postgresql://ckpt:a@{PASSWORD}@127.0.0.1:1/x",
        f"postgresql://ckpt:{PASSWORD} @127.0.0.1:1/x",
        f"mysql://ckpt:{PASSWORD}@127.0.0.1:1/x",
        f"ckpt:{PASSWORD}@127.0.0.1:1",
    ],
)
def test_no_way_to_write_a_url_shows_its_password(
    ckpt: Ckpt, home: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("CKPT_METASTORE", url)
    for words in (["pipelines"], ["-v", "pipelines", "--json"], ["doctor"]):
        run = ckpt(*words)
        assert run.code in (ExitCode.MISUSED, ExitCode.TRY_AGAIN)
        assert PASSWORD not in str(run)


@pytest.mark.parametrize(
    "words",
    [
        ["--metastore", NOWHERE, "pipelines"],
        ["pipelines", f"--metastore={NOWHERE}"],
        ["pipelines", "--metastore", f"postgresql://u@h/x?password={PASSWORD}"],
        ["pipelines", "--metastor", NOWHERE],
        [NOWHERE],
    ],
)
def test_a_password_on_the_command_line_is_refused_and_not_repeated(ckpt: Ckpt, home: Path, words: list[str]) -> None:
    for more in ([], ["--json"]):
        run = ckpt(*words, *more)
        assert run.code == ExitCode.MISUSED
        assert PASSWORD not in str(run)


def test_a_store_elsewhere_needs_its_own_storage_before_anything_happens(
    ckpt: Ckpt, driver: Driver, home: Path, take: Callable[..., Ref], monkeypatch: pytest.MonkeyPatch
) -> None:
    take()
    driver.fail()
    before = everything(home)
    monkeypatch.setenv("CKPT_METASTORE", f"sqlite:///{home / 'metastore.db'}")
    for words in (["cleanup", "orders"], ["restore", "orders"], ["verify", "orders"], ["trigger", "orders"]):
        run = ckpt(*words)
        assert run.code == ExitCode.MISUSED
        assert "CKPT_STORAGE" in run.err
    assert everything(home) == before
    assert ckpt("list", "orders").code == 0, "who only asks the store needs no storage"
    monkeypatch.setenv("CKPT_STORAGE", str(home / "storage"))
    assert ckpt("verify", "orders").code == 0


def test_a_storage_that_can_not_be_written_fails_no_checkpoint_before_its_deadline(
    ckpt: Ckpt, driver: Driver, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ckpt("trigger", "orders", "--no-wait", "--key", "k")
    driver.capture(Ref("orders", 1))
    driver.acknowledge(Ref("orders", 1))

    def refuse(*_: object) -> None:
        raise Unreachable("The disk below /x did not serve manifest: it is gone. Check it, then run this again.")

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "create", refuse)
        run = ckpt("trigger", "orders", "--key", "k", "--wait", "0.6")
        assert run.code == ExitCode.TRY_AGAIN
        assert run.err.count("it is gone") == 2, "a warning once, and the error at the end"
    assert ckpt("trigger", "orders", "--key", "k").code == 0


def test_a_storage_below_a_file_is_misused(ckpt: Ckpt, driver: Driver, home: Path) -> None:
    driver.fail()
    run = ckpt("doctor", "--storage", str(home / "metastore.db" / "below"), "--json")
    assert run.code == ExitCode.MISUSED
    assert {each["name"]: each["status"] for each in run.document["checks"]}["storage"] == "failed"
    assert ckpt("verify", "orders", "--storage", "ftp://host/x").code == ExitCode.MISUSED


def test_an_unexpected_failure_has_a_traceback_only_when_asked_for(
    ckpt: Ckpt, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise RuntimeError(f"surprise at {NOWHERE}")

    monkeypatch.setattr("airflow_provider_ckpt.metastore.pipelines.Pipelines.all", explode)
    quiet, loud = ckpt("pipelines", "--json"), ckpt("pipelines", "-v")
    assert quiet.code == loud.code == ExitCode.UNEXPECTED
    assert quiet.document["error"]["kind"] == "RuntimeError"
    assert "Traceback" not in quiet.err
    assert "Traceback" in loud.err
    assert PASSWORD not in str(quiet) + str(loud)


def test_ctrl_c_says_that_the_checkpoint_goes_on(ckpt: Ckpt, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(following, "see", interrupt)
    run = ckpt("trigger", "orders")
    assert run.code == ExitCode.INTERRUPTED
    assert "orders/1 goes on" in run.err
    assert driver.store.checkpoints.get(Ref("orders", 1)).phase is Phase.TRIGGERED


# how it is shown


def test_stored_text_can_not_command_the_terminal(ckpt: Ckpt, driver: Driver) -> None:
    hostile = "\x1b[2Jwiped\u202e [red]bold[/red]\nsecond line"
    logged = ckpt("-v", "trigger", "orders", "--no-wait", "--reason", hostile)
    assert "\x1b" not in logged.err
    assert logged.err.count("\n") == 1
    shown = ckpt("show", "orders/1")
    assert "\x1b" not in shown.out
    assert "\u202e" not in shown.out
    assert "[red]bold[/red] second line" in shown.out
    assert ckpt("show", "orders/1", "--json").document["reason"] == hostile


def test_a_password_that_somebody_stored_is_not_shown(ckpt: Ckpt, driver: Driver) -> None:
    logged = ckpt("-v", "trigger", "orders", "--no-wait", "--reason", f"see {NOWHERE} for more")
    assert "see postgresql://ckpt:***@127.0.0.1:1/x for more" in logged.err
    assert PASSWORD not in str(logged)
    for words in (["show", "orders/1"], ["show", "orders/1", "--json"], ["list", "orders", "--json"]):
        run = ckpt(*words)
        assert "see postgresql://ckpt:***@127.0.0.1:1/x for more" in run.out or "list" in words
        assert PASSWORD not in str(run)


def test_text_that_is_no_utf8_is_kept_as_far_as_it_can_be(ckpt: Ckpt, driver: Driver) -> None:
    assert ckpt("trigger", "orders", "--no-wait", "--reason", "caf\udce9").code == 0
    assert "caf?" in ckpt("show", "orders/1").out


def test_verbose_logs_every_change_on_standard_error_and_nothing_is_left_configured(ckpt: Ckpt, home: Path) -> None:
    run = ckpt("-v", "init", "orders", "--json")
    assert run.document["created"] == ["orders"]
    assert "orders pipeline.created by" in run.err
    assert logging.getLogger("airflow_provider_ckpt").handlers == []
    assert ckpt("init", "payments").err == ""


def test_common_options_stand_before_or_after_the_command(ckpt: Ckpt, home: Path) -> None:
    ckpt("init")
    elsewhere = f"sqlite:///{home / 'other.db'}"
    assert ckpt("--json", "pipelines").document == ckpt("pipelines", "--json").document
    assert ckpt("--metastore", elsewhere, "pipelines").code == ckpt("pipelines", "--metastore", elsewhere).code == 4


def in_process(*words: str, **streams: Any) -> "subprocess.Popen[bytes]":
    program = "import sys; from airflow_provider_ckpt.cli import main; sys.exit(main())"
    return subprocess.Popen([sys.executable, "-W", "error", "-c", program, *words], **streams)


def test_a_reader_who_has_gone_is_no_failure(ckpt: Ckpt, driver: Driver) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with in_process("show", "orders", stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, b"")


def test_progress_is_drawn_on_a_terminal_and_standard_output_stays_json(ckpt: Ckpt, take: Callable[..., Ref]) -> None:
    take()
    screen, terminal = os.openpty()
    environ = os.environ | {"TERM": "xterm", "NO_COLOR": "1"}
    with in_process("verify", "orders", "--json", stdout=subprocess.PIPE, stderr=terminal, env=environ) as process:
        out, _ = process.communicate(timeout=20)
        os.close(terminal)
    drawn = os.read(screen, 65536).decode()
    os.close(screen)
    assert process.returncode == 0
    assert json.loads(out)["is_intact"] is True
    assert "Verifying" in drawn
    assert "\x1b[3" not in drawn, "NO_COLOR is respected"


def test_help_loads_neither_boto3_nor_alembic_nor_sqlalchemy() -> None:
    program = (
        "import sys; from airflow_provider_ckpt.cli import main; main(['--help']);"
        "print({'boto3', 'alembic', 'sqlalchemy', 'rich', 'pendulum'} & set(sys.modules), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20)
    assert run.stderr.strip() == "set()"
    for text in ("exit codes:", "CKPT_METASTORE", "outcome unknown"):
        assert text in run.stdout


# objectives


def test_sla_says_by_its_exit_code_whether_all_is_well_and_silence_is_announced(ckpt: Ckpt, driver: Driver) -> None:
    assert "all is well" in ckpt("sla").out
    driver.fail("out of memory")
    breached = ckpt("sla", "orders")
    assert breached.code == 11
    assert "attempt 1 has failed: out of memory" in breached.out
    assert ckpt("sla", "--json").document["pipelines"]["orders"][0]["kind"] == "down"
    assert ckpt("silence", "orders", "--for", "2h", "--reason", "a new disk").code == 0
    assert driver.store.alerts.silent_until("orders") is not None
    assert ckpt("silence", "orders", "--over").code == 0
    assert driver.store.alerts.silent_until("orders") is None


def test_sla_of_nothing_is_not_well(ckpt: Ckpt) -> None:
    ckpt("init")
    assert (ckpt("sla").code, ckpt("sla", "nobody").code) == (4, 4)
    assert ckpt("silence", "nobody", "--for", "2h").code == 4
    assert ckpt("silence", "nobody", "--for", "soon").code == 2
