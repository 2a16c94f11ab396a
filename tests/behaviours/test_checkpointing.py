"""A checkpoint from the agent's side without Spark: of a location written by hand, with tasks in this process."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.coordinator.cleanup import cleanup
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.coordinator.restore import restore
from airflow_provider_ckpt.coordinator.verify import verify
from airflow_provider_ckpt.metastore.schema import checkpoints
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.manifest import Manifest
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Verdict
from airflow_provider_ckpt.spark import capturing, persisting
from airflow_provider_ckpt.spark.capturing import Member
from airflow_provider_ckpt.spark.checkpointing import Checkpointing, Running, Site
from airflow_provider_ckpt.spark.folders import AttemptFolder
from airflow_provider_ckpt.spark.holding import Known
from airflow_provider_ckpt.spark.laying_out import lay_out_checkpoint
from airflow_provider_ckpt.spark.persisting import Order, Share, persist
from tests.house import NAME, SETTINGS, House, RemoteFolder
from tests.unit.spark.locations import LocationOnDisk

QUERY = "totals"
OTHER = "zones"  # captured after it


class Agent:
    """The first attempt of some queries; each leaves a small file in each of two partitions with every batch."""

    def __init__(self, house: House, work: Path, queries: Sequence[str] = (QUERY,)) -> None:
        self.house = house
        self.folder = AttemptFolder(work=work, pipeline=NAME, attempt=1)
        self.locations = {name: LocationOnDisk(self.folder.location(name)) for name in queries}
        self.location = self.locations[QUERY]
        for location in self.locations.values():
            location.describe()
        self.graph = Graph(tuple(Query(name=name) for name in queries))
        self.batch = -1
        self.spark_says: int | None = None  # which batch it has committed
        self.meanwhile: dict[str, Callable[[], object]] = {}  # what happens when a query is about to be captured
        self.site = Site(
            context=house.context,
            folder=self.folder,
            known=Known(),
            run_shares=self._run_shares,
            metastore_url="",
            storage_url="",
        )
        house.store.pipelines.create(NAME, SETTINGS, identity="tester", actor="tester")
        restore(house.context, NAME)
        house.store.attempts.claim(NAME, 1, "driver", self.graph)

    def process(self, batches: int = 1, *, snapshots: bool = False) -> None:
        """A snapshot makes all state before it superfluous."""
        for _ in range(batches):
            self.batch += 1
            for location in self.locations.values():
                location.see(self.batch, [f"{self.batch}.json"])
                location.plan(self.batch, {"logOffset": self.batch})
                location.state(f"{self.batch + 1}.{'snapshot' if snapshots else 'delta'}")
                location.commit(self.batch)

    def take(self) -> Manifest:
        triggered = self.house.trigger()
        assert triggered.checkpoint is not None
        checkpointing = Checkpointing(self.site, triggered.checkpoint.ref, self._look)
        checkpoint = checkpointing.run()
        assert checkpoint is not None, self.house.get(triggered.checkpoint.ref).failure
        checkpointing.learn(checkpoint)
        return load_manifest(self.house.context, checkpoint)

    def fail(self) -> str:
        """Take one, and see why it fails."""
        triggered = self.house.trigger()
        assert triggered.checkpoint is not None
        assert Checkpointing(self.site, triggered.checkpoint.ref, self._look).run() is None
        failure = self.house.get(triggered.checkpoint.ref).failure
        assert failure is not None
        return failure.message

    def _look(self) -> Running:
        assert self.site.starting.locked(), "a query could join while the cut is taken"
        return self.graph, {name: self._member(name) for name in self.locations}

    def _member(self, name: str) -> Member:
        def progress() -> int | None:
            self.meanwhile.get(name, lambda: None)()
            return self.spark_says

        return Member(
            name=name,
            reads=(),
            writes=(),
            properties={"root": str(self.folder.root)},
            is_active=lambda: True,
            progress=progress,
        )

    def _run_shares(self, order: Order, shares: Sequence[Share]) -> None:
        assert not self.site.starting.locked(), "queries may start while files are copied"
        persist(order, shares)


@pytest.fixture
def agent(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    house = _house(database, tmp_path, monkeypatch)
    yield Agent(house, tmp_path / "work")
    house.store.close()


@pytest.fixture
def agent_of_two(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    house = _house(database, tmp_path, monkeypatch)
    yield Agent(house, tmp_path / "work", (QUERY, OTHER))
    house.store.close()


def _house(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    house = House(database, tmp_path, remote=RemoteFolder(tmp_path / "remote"))
    monkeypatch.setattr(persisting, "_storage", lambda _: house.storage)
    monkeypatch.setattr(persisting, "_store", lambda _: house.store)
    return house


def test_a_query_whose_progress_is_ahead_of_its_location_fails_the_checkpoint_by_name(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark writes elsewhere: a checkpoint of what is seen here would complete, and hold nothing."""
    monkeypatch.setattr(capturing, "_NEXT_COMMIT", 0.1)
    agent.process(2)
    agent.spark_says = 1
    agent.take()
    agent.spark_says = 5
    failed = agent.fail()
    assert "totals has committed batch 5, says Spark" in failed
    assert f"{agent.location.root} has 1" in failed


def test_a_file_that_has_changed_since_spark_wrote_it_is_not_stored(agent: Agent) -> None:
    """Stored as it is, it would have a checksum of ours, and be trusted for ever."""
    agent.process(2)
    agent.take()
    agent.process(1)
    damaged = agent.location.root / "state" / "0" / "0" / "3.delta"
    data = bytearray(damaged.read_bytes())
    data[0] ^= 1
    damaged.write_bytes(data)
    failed = agent.fail()
    assert "state/0/0/3.delta does not match its checksums: it has changed since Spark wrote it" in failed
    assert f"`ckpt restore {NAME} --rewind --take-over`" in failed


def _new(manifest: Manifest) -> set[str]:
    own = f"files/{manifest.attempt}/{manifest.ref.id}/"
    return {path for path in manifest.files if path.startswith(own)}


def _names(manifest: Manifest) -> list[str]:
    return sorted(name for file in manifest.laid_out for name in file.names)


def test_a_checkpoint_stores_what_is_new_in_one_file_for_each_participant(agent: Agent) -> None:
    agent.process(4)
    first = agent.take()
    assert len(_new(first)) <= len(first.parts)
    agent.process(2)
    second = agent.take()
    assert set(second.files) - set(first.files) == _new(second)
    assert len(_names(second)) == len(set(_names(second)))
    assert _names(second) == [f"queries/{QUERY}/{name}" for name in agent.location.needs(agent.batch)]
    assert agent.take().files == second.files, "nothing has changed: nothing is stored"


def test_what_was_packed_is_laid_out_for_a_new_attempt_which_builds_on_it(agent: Agent) -> None:
    agent.process(4)
    agent.take()
    agent.process(3)
    manifest = agent.take()
    new = agent.folder.of(2)
    identities = lay_out_checkpoint(agent.house.context, manifest, new)
    for name in _names(manifest):
        assert (new.root / name).read_bytes() == (agent.folder.root / name).read_bytes(), name
    known = Known()
    known.learn(manifest, identities)
    moved = [name for name in _names(manifest) if "/sources/" in name]  # they have paths of the new place
    assert sorted(known.files) == sorted(set(_names(manifest)) - set(moved))


def test_a_pack_stays_while_a_kept_checkpoint_needs_a_part_of_it(agent: Agent) -> None:
    agent.process(4)
    oldest = agent.take()
    for _ in range(4):
        agent.process()
        newest = agent.take()
    assert set(newest.files) & set(oldest.files), "it does not build on the oldest: nothing is shown"
    report = cleanup(agent.house.context, NAME)
    assert oldest.ref.id not in report.kept
    assert verify(agent.house.context, newest.ref).is_intact
    lay_out_checkpoint(agent.house.context, newest, agent.folder.of(2))


def test_a_pack_that_was_shortened_is_found_before_anything_is_laid_out_of_it(agent: Agent, tmp_path: Path) -> None:
    agent.process(4)
    manifest = agent.take()
    packed = next(file for file in manifest.laid_out if file.members)
    stored = tmp_path / "remote" / manifest.located(packed)
    stored.chmod(0o600)
    stored.write_bytes(stored.read_bytes()[:-1])
    found = verify(agent.house.context, manifest.ref)
    assert not found.is_intact
    assert packed.path in found.problems[0]


def test_a_file_that_was_written_again_is_not_taken_from_the_pack_of_the_old_one(agent: Agent) -> None:
    agent.process(4)
    first = agent.take()
    agent.location.remove("state/0/0/2.delta")
    agent.location.write("state/0/0/2.delta", "another try")
    second = agent.take()
    assert set(first.files) < set(second.files), "the other members of the pack are still needed"
    new = agent.folder.of(2)
    lay_out_checkpoint(agent.house.context, second, new)
    assert (new.location(QUERY) / "state/0/0/2.delta").read_text() == "another try"
    assert len(_names(second)) == len(set(_names(second)))


# a base that is gone


def test_where_the_base_is_corrupt_everything_is_copied_anew(agent: Agent) -> None:
    agent.process(4)
    first = agent.take()
    agent.process()
    agent.house.store.checkpoints.judge(first.ref, Verdict.CORRUPT, "a bit flipped", actor="tester")
    second = agent.take()
    assert _new(second) == set(second.files), "it names files of what is corrupt"
    assert verify(agent.house.context, second.ref).is_intact
    agent.process()
    assert not _new(agent.take()) >= set(second.files), "the one after it is incremental again"


def test_a_base_that_goes_between_two_cuts_fails_the_checkpoint_and_the_next_one_is_whole(agent_of_two: Agent) -> None:
    agent = agent_of_two
    agent.process(4)
    first = agent.take()
    agent.process()
    agent.meanwhile[OTHER] = lambda: _take_away(agent, first)
    assert "it would build on 1, which went while it was captured" in agent.fail()
    agent.meanwhile.clear()
    second = agent.take()
    assert _new(second) == set(second.files)
    assert verify(agent.house.context, second.ref).is_intact


def test_a_base_that_is_found_corrupt_between_two_cuts_fails_the_checkpoint_and_the_next_one_is_whole(
    agent_of_two: Agent,
) -> None:
    agent = agent_of_two
    agent.process(4)
    first = agent.take()
    agent.process()
    judge = agent.house.store.checkpoints.judge
    agent.meanwhile[OTHER] = lambda: judge(first.ref, Verdict.CORRUPT, "a bit flipped", actor="tester")
    assert f"it builds on {first.ref}, which was found to be corrupt" in agent.fail()
    agent.meanwhile.clear()
    assert verify(agent.house.context, agent.take().ref).is_intact


def _take_away(agent: Agent, manifest: Manifest) -> None:
    """As a cleanup does that nobody sees coming: no guard of the metastore would let it."""
    with agent.house.store.engine.write() as tx:
        going = sa.update(checkpoints).where(checkpoints.c.id == manifest.ref.id)
        tx.connection.execute(going.values(phase=Phase.DISCARDING))
