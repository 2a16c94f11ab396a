"""A year of a thousand checkpoints a day, compressed: whatever a store holds and whatever a call costs stays the same.

The clock is the test's own. What is kept for days is kept for hours here, so that a few hundred checkpoints reach the
steady state that a year would.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.coordinator.cleanup import cleanup
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.diagnosis import Need, diagnose
from airflow_provider_ckpt.coordinator.health import health
from airflow_provider_ckpt.coordinator.recoveries import recent_recoveries
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, restore
from airflow_provider_ckpt.metastore import history
from airflow_provider_ckpt.metastore.schema import metadata
from airflow_provider_ckpt.protocol.cut import Graph
from airflow_provider_ckpt.protocol.errors import LeaseLost, NotFound
from airflow_provider_ckpt.protocol.objectives import Problem, ProblemKind
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import FailureReason
from airflow_provider_ckpt.protocol.records import AUDITED, AttemptStatus, DesiredState, Ref
from airflow_provider_ckpt.protocol.recovery import Policy
from airflow_provider_ckpt.protocol.retention import Retention
from airflow_provider_ckpt.storage.memory import MemoryStorage
from airflow_provider_ckpt.testing import ScriptedPipeline
from airflow_provider_ckpt.testing.scripted import SINK
from tests.house import NAME, SETTINGS, House

pytestmark = pytest.mark.slow

A_DAY = 1000  # checkpoints
GROWING = replace(
    SETTINGS,
    keep_events=timedelta(minutes=30),
    keep_audit=timedelta(hours=1),
    attempt_ttl=timedelta(days=30),  # nobody is lost here
    orphan_grace=timedelta(minutes=5),
    quarantine=timedelta(minutes=5),
    retention=Retention(last=3),
)


@dataclass
class Cost:
    """What one kind of call has cost the database."""

    statements: int = 0
    steps: int = 0  # of SQLite's machine: what it reads and writes shows here, whatever the result


@dataclass
class Year:
    """A pipeline that is checkpointed, fails, is restored and cleaned up, again and again."""

    house: House
    driver: ScriptedPipeline = field(init=False)
    taken: int = 0

    def __post_init__(self) -> None:
        self.driver = self.house.pipeline(with_sink=True, settings=GROWING)

    def pass_checkpoints(self, count: int) -> None:
        for _ in range(count):
            self.taken += 1
            self.house.pass_time(seconds=86400 / A_DAY)
            if self.taken % 5 == 0:
                self._fail_one()
            self.house.checkpoint(self.driver)
            if self.taken % 7 == 0:
                self._restart()
            if self.taken % 10 == 0:
                self._ask_for_things()
                cleanup(self.house.context, NAME)

    def _fail_one(self) -> None:
        """Before anything of it is stored: no survey of the storage comes across it."""
        ref = self.house.in_flight(self.driver)
        self.house.store.checkpoints.fail(ref, FailureReason.DECLINED, "no room", actor="tester")
        self.driver.acknowledge(ref)  # late: evidence

    def _restart(self) -> None:
        """Twice: the attempt between dies before it completes anything."""
        for _ in range(2):
            self.house.restore(with_sink=True)
            self.driver = self.house.driver(with_sink=True, claim=f"driver {self.taken}")
            self.driver.start()

    def _ask_for_things(self) -> None:
        self.house.trigger(active_cleanup_runs=1)  # skipped
        self.house.store.pipelines.change(NAME, lambda was: was, actor="a person")
        problem = Problem(kind=ProblemKind.STALE, text="it is old")
        self.house.store.alerts.raise_for(NAME, [problem], actor="watcher")
        self.house.store.alerts.raise_for(NAME, [], actor="watcher")

    def sizes(self) -> dict[str, int]:
        with self.house.store.engine.read() as tx:
            count = sa.select(sa.func.count())
            tables = metadata.sorted_tables
            return {each.name: tx.connection.execute(count.select_from(each)).scalar_one() for each in tables}

    def costs(self) -> dict[str, Cost]:
        """Of the calls that every checkpoint makes, and of a cleanup."""
        found: dict[str, Cost] = {}
        with self._measured(found, "trigger"):
            ref = self.house.in_flight_ref()
        self.driver.process(1)
        self.driver.capture(ref)
        self.driver.acknowledge(ref)
        with self._measured(found, "complete"):
            complete(self.house.context, ref)
            self.driver.commit(ref)
        with self._measured(found, "health"):
            health(self.house.context, NAME)
        with self._measured(found, "cleanup"):
            cleanup(self.house.context, NAME)
        return found

    @contextmanager
    def _measured(self, found: dict[str, Cost], name: str) -> Iterator[None]:
        engine, cost = self.house.store.engine.sa, Cost()

        def began(connection: sa.Connection, *_: object) -> None:
            cost.statements += 1
            if engine.dialect.name == "sqlite":
                raw = connection.connection.driver_connection
                raw.set_progress_handler(step, 10)  # type: ignore[union-attr]

        def step() -> int:
            cost.steps += 10
            return 0

        sa.event.listen(engine, "before_cursor_execute", began)
        try:
            yield
        finally:
            sa.event.remove(engine, "before_cursor_execute", began)
            found[name] = cost


@pytest.fixture
def year(database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> Iterator[Year]:
    monkeypatch.setattr(history, "_KEPT_ATTEMPTS", 12)
    house = House(database, tmp_path, remote=MemoryStorage())  # type: ignore[arg-type]
    yield Year(house)
    house.store.close()


def test_a_year_of_checkpoints_costs_what_its_first_days_did(year: Year) -> None:
    year.pass_checkpoints(60)  # more than `keep_audit`: what goes, goes
    sizes, costs = year.sizes(), year.costs()
    year.pass_checkpoints(60)
    later, later_costs = year.sizes(), year.costs()
    for table, before in sizes.items():
        assert later[table] <= before * 1.15 + 3, f"{table} grows: {before} rows, then {later[table]}"
    assert later["ckpt_events"] < year.taken * 7, "nothing was trimmed"
    for call, cost in costs.items():
        now = later_costs[call]
        assert now.statements <= cost.statements * 1.15 + 3, f"{call}: {cost} became {now}"
        assert now.steps <= cost.steps * 1.3 + 500, f"{call}: {cost} became {now}"
    assert restore(year.house.context, NAME, RestoreOptions(is_proven_dead=True)).attempt.restored_from is not None


def test_a_pipeline_that_never_completes_a_checkpoint_is_bounded_too(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_KEPT_ATTEMPTS", 5)
    house.store.pipelines.create(NAME, GROWING, identity="t", actor="t")
    sizes = []
    for round_ in range(30):
        number = house.restore().attempt.number
        house.store.attempts.claim(NAME, number, f"driver {number}", Graph(()))
        house.store.attempts.end(NAME, number, AttemptStatus.FAILED, actor="driver", failure="a typing error")
        house.pass_time(minutes=5)
        if round_ % 5 == 4:
            cleanup(house.context, NAME)
            sizes.append((len(house.store.attempts.of(NAME)), len(house.store.events.newest(NAME, limit=1000))))
    assert sizes[-1][0] <= 6
    assert sizes[-1] == sizes[-2] == sizes[-3]


# what reads the history


@pytest.fixture
def past(house: House, monkeypatch: pytest.MonkeyPatch) -> House:
    """A pipeline that has run undisturbed for longer than anything is kept, with a savepoint from its beginning."""
    monkeypatch.setattr(history, "_KEPT_ATTEMPTS", 2)
    driver = house.pipeline(settings=GROWING)
    house.checkpoint(driver, savepoint="first")
    for _ in range(9):
        house.restore()
        driver = house.driver(claim="again")
        attempt = driver.start()
        house.store.attempts.note_progress(NAME, attempt.number, "again")
        house.checkpoint(driver)
    house.store.pipelines.desire(NAME, DesiredState.RUNNING, actor="a person")
    house.store.alerts.silence(NAME, timedelta(days=30), actor="a person", reason="moving")
    house.store.alerts.end_silence(NAME, actor="a person")
    house.store.alerts.raise_for(NAME, [Problem(kind=ProblemKind.STALE, text="it is old")], actor="watcher")
    for _ in range(13):
        house.pass_time(minutes=10)
        house.checkpoint(driver)
    return house


def test_what_is_left_has_its_events_and_its_line(past: House) -> None:
    before = past.store.attempts.of(NAME)
    shown = past.store.events.newest(NAME, checkpoint=1, limit=100)
    report = cleanup(past.context, NAME)
    assert report.trimmed > 20
    assert past.store.events.newest(NAME, checkpoint=1, limit=100) == shown, "a savepoint that is kept is shown whole"
    assert len(past.store.attempts.of(NAME)) < len(before)
    assert past.restore(to=1).attempt.parent == 1
    newest = past.store.checkpoints.page(NAME, limit=1, phases=frozenset({Phase.COMPLETED})).checkpoints[0]
    assert past.restore(to=newest.ref.id).attempt.restored_from == newest.ref.id


def test_who_asks_for_the_last_event_of_a_kind_finds_it(past: House) -> None:
    kinds = {event.kind for event in past.store.events.newest(NAME, limit=10_000)}
    last = {kind: past.store.events.last(NAME, kind) for kind in kinds}
    told = past.store.alerts.open(NAME)
    cleanup(past.context, NAME)
    found = {kind: past.store.events.last(NAME, kind) for kind in kinds}
    assert None not in found.values()
    assert {kind for kind in kinds if found[kind] != last[kind]} <= {"cleanup.started"}
    assert past.store.alerts.open(NAME) == told
    again = past.store.alerts.raise_for(NAME, [Problem(kind=ProblemKind.STALE, text="")], actor="w")
    assert again == [], "people were told of it long ago"
    assert recent_recoveries(past.context, NAME)
    assert diagnose(past.context, NAME, jitter=0.0).need is Need.NOTHING


def test_a_cursor_that_points_at_what_is_gone_goes_on(past: House) -> None:
    cursor = past.store.events.newest(NAME, limit=10_000)[-1].seq
    wanted = frozenset({"checkpoint.completed"})
    position = past.store.events.position(NAME)
    cleanup(past.context, NAME)
    assert past.store.events.position(NAME) > position
    left = past.store.events.since({NAME: cursor}, wanted)
    assert [event.seq for event in left] == sorted(event.seq for event in left)
    assert len(left) < 22
    pages, before = [], None
    while page := past.store.events.newest(NAME, before=before, limit=7):
        pages += page
        before = page[-1].seq
    assert {event.seq for event in left} <= {event.seq for event in pages}
    with past.store.engine.sa.connect() as connection, pytest.raises(sa.exc.DBAPIError, match="append-only"):
        connection.exec_driver_sql(f"DELETE FROM ckpt_events WHERE seq = {pages[0].seq}")


def test_what_a_person_did_is_kept_for_longer(house: House) -> None:
    driver = house.pipeline(settings=GROWING)
    for _ in range(8):
        house.store.pipelines.change(NAME, lambda was: was, actor="a person")
        house.pass_time(minutes=10)
        house.checkpoint(driver)
    cleanup(house.context, NAME)
    kept = house.store.events.newest(NAME, limit=1000)
    now = house.store.checkpoints.now()
    assert max(now - each.at for each in kept if each.kind == "pipeline.changed") > timedelta(minutes=30)
    assert max(now - each.at for each in kept if each.kind in AUDITED - {"pipeline.created"}) <= timedelta(hours=1)
    assert max(now - each.at for each in kept if each.kind == "cleanup.started") <= timedelta(minutes=30)


def test_what_a_person_chose_for_a_restore_is_kept_as_such(house: House) -> None:
    driver = house.pipeline(settings=GROWING, with_sink=True)
    first = house.checkpoint(driver)
    house.checkpoint(driver)
    house.restore(to=first.id, with_sink=True, policy=Policy(accept_duplicates=frozenset({SINK})))
    house.restore(with_sink=True)  # by itself: nobody has chosen anything
    chosen = house.store.events.of_kind(NAME, "restore.chosen", limit=10)
    assert [(each.actor, each.attempt, each.reason) for each in chosen] == [
        ("tester", 2, f"to {first}, accepts duplicates in {SINK}")
    ]
    assert "restore.chosen" in AUDITED


def test_a_failed_checkpoint_goes_with_all_its_rows_and_its_number_is_not_used_again(house: House) -> None:
    driver = house.pipeline(settings=GROWING)
    failed = house.in_flight(driver)
    house.store.checkpoints.fail(failed, FailureReason.DECLINED, "no room", actor="tester")
    house.checkpoint(driver)
    house.pass_time(minutes=6)
    cleanup(house.context, NAME)
    assert house.store.acks.rows(failed) == []
    assert house.get(failed).phase is Phase.FAILED, "it is still shown"
    house.pass_time(hours=1)
    cleanup(house.context, NAME)
    with pytest.raises(NotFound, match="ckpt list"):
        house.get(failed)
    assert house.checkpoint(driver) == Ref(NAME, 3)


def test_trimming_gives_way_as_every_cleanup_does(house: House) -> None:
    house.pipeline(settings=GROWING)
    lease = house.store.leases.acquire_cleanup(NAME, owner="cleaner", token="t")
    house.store.leases.release(lease)
    with pytest.raises(LeaseLost):
        house.store.history.trim(lease)
