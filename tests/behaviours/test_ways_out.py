"""Where a pipeline could get stuck: what is refused names a command, and following it to the letter leads out."""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_ckpt.cli import ExitCode, main
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.diagnosis import Need, diagnose
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, restore
from airflow_provider_ckpt.coordinator.verify import verify
from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.protocol.errors import LeaseLost, Refused, TryAgain
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import AckOutcome, FailureReason, SkipReason
from airflow_provider_ckpt.protocol.records import LeaseKind, Ref, Verdict
from airflow_provider_ckpt.protocol.recovery import Policy, Target
from airflow_provider_ckpt.testing import ScriptedPipeline, truth, watch_store
from airflow_provider_ckpt.testing.scripted import SINK
from tests.house import NAME, SETTINGS, House

_COMMAND = re.compile(r"`ckpt ([^`]+)`")


class Shell:
    """The `ckpt` command for the house, as a person types it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, command: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = main(command.split())
        return code, "".join(self._capsys.readouterr())

    def refused(self, command: str) -> str:
        code, said = self.run(command)
        assert code != ExitCode.DONE, said
        return " ".join(said.split())

    def follow(self, said: str) -> Sequence[str]:
        """Do what a refusal says, one command after the other."""
        commands = _COMMAND.findall(said)
        assert commands, f"no way out is named: {said}"
        for command in commands:
            code, answer = self.run(command)
            assert code == ExitCode.DONE, f"{command}: {answer}"
        return commands


@pytest.fixture
def shell(wall_house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("CKPT_METASTORE", wall_house.url)
    monkeypatch.setenv("CKPT_STORAGE", str(wall_house.folder))
    monkeypatch.setenv("COLUMNS", "400")
    return Shell(capsys)


@contextmanager
def running(driver: ScriptedPipeline) -> Iterator[None]:
    """The driver does its part beside the commands."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(0.05):
            driver.tick()

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def files_of(house: House, ref: Ref) -> list[Path]:
    return sorted(file for file in (house.folder / NAME / "files").rglob(f"{ref.id}/**/*") if file.is_file())


def damage(house: House, ref: Ref) -> Callable[[], object]:
    """Change one byte of one file, at the same size; gives back how to repair it."""
    file = files_of(house, ref)[0]
    data = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(b"!" + data[1:])
    return lambda: file.write_bytes(data)


# what the sinks stand at


def test_the_checkpoint_that_the_sinks_stand_at_is_not_let_go_and_the_refusal_leads_out(
    wall_house: House, shell: Shell
) -> None:
    driver = wall_house.pipeline(with_sink=True)
    wall_house.checkpoint(driver, events=2)
    newest = wall_house.checkpoint(driver, events=2)
    for command in (f"cleanup {NAME} --discard {newest.id} --dry-run", f"cleanup {NAME} --discard {newest.id}"):
        said = shell.refused(command)
        assert "sink totals/sink stands at it" in said
    assert wall_house.get(newest).phase is Phase.COMPLETED
    with running(driver):
        shell.follow(said)
    assert wall_house.get(newest).phase is not Phase.COMPLETED
    wall_house.restore(with_sink=True)
    second = wall_house.driver(with_sink=True, claim="second")
    second.start()
    wall_house.checkpoint(second, events=2)
    assert wall_house.sink.read(NAME) == truth(second.position, 2)


def test_a_savepoint_that_the_sinks_stand_at_is_not_let_go_either(wall_house: House, shell: Shell) -> None:
    driver = wall_house.pipeline(with_sink=True)
    wall_house.checkpoint(driver)
    wall_house.checkpoint(driver, savepoint="upgrade")
    assert "sink totals/sink stands at it" in shell.refused(f"cleanup {NAME} --discard upgrade")


def test_an_older_checkpoint_goes_by_wish_also_where_there_are_sinks(wall_house: House, shell: Shell) -> None:
    driver = wall_house.pipeline(with_sink=True)
    older = wall_house.checkpoint(driver)
    wall_house.checkpoint(driver)
    assert shell.run(f"cleanup {NAME} --discard {older.id}")[0] == ExitCode.DONE


def test_a_damaged_checkpoint_goes_by_wish_and_the_next_restore_does_not_send_anybody_to_it(
    wall_house: House, shell: Shell
) -> None:
    driver = wall_house.pipeline(with_sink=True)
    wall_house.checkpoint(driver, events=2)
    newest = wall_house.checkpoint(driver, events=2)
    damage(wall_house, newest)
    assert shell.run(f"verify {newest}")[0] == ExitCode.CORRUPT
    assert shell.run(f"cleanup {NAME} --discard {newest.id}")[0] == ExitCode.DONE
    with pytest.raises(Refused, match="is not there any more: accept duplicates") as refused:
        wall_house.restore(with_sink=True)
    assert f"--to {newest.id}" not in str(refused.value)
    advice = re.search(r"--accept-duplicates (\S+)\.", str(refused.value))
    assert advice is not None
    wall_house.restore(with_sink=True, policy=Policy(accept_duplicates=frozenset({advice[1]})))
    second = wall_house.driver(with_sink=True, claim="second")
    second.start()
    wall_house.checkpoint(second)
    assert wall_house.restore(with_sink=True).choice.price.duplicated == ()


# what is damaged


def test_what_verify_has_called_corrupt_is_no_base_of_the_next_checkpoint(wall_house: House, shell: Shell) -> None:
    driver = wall_house.pipeline(partitions=3)
    first = wall_house.checkpoint(driver, events=3)
    damage(wall_house, first)
    assert shell.run(f"verify {first}")[0] == ExitCode.CORRUPT
    next_one = wall_house.checkpoint(driver, events=1)
    assert shell.run(f"verify {next_one}")[0] == ExitCode.DONE
    assert wall_house.restore().attempt.restored_from == next_one.id


def test_one_damaged_file_condemns_every_checkpoint_that_names_it(wall_house: House, shell: Shell) -> None:
    """The base of the next one is the newest; only the oldest was looked at."""
    driver = wall_house.pipeline(partitions=3)
    first, second = wall_house.checkpoint(driver, events=3), wall_house.checkpoint(driver, events=1)
    own = wall_house.checkpoint(driver, events=3)
    damage(wall_house, first)
    assert shell.run(f"verify {first}")[0] == ExitCode.CORRUPT
    assert [wall_house.get(ref).verdict for ref in (first, second, own)] == [Verdict.CORRUPT, Verdict.CORRUPT, None]
    detail = wall_house.get(second).verdict_detail
    assert detail is not None
    assert f"files/1/{first.id}/" in detail
    third = wall_house.checkpoint(driver, events=1)
    assert shell.run(f"verify {third}")[0] == ExitCode.DONE


def test_a_checkpoint_in_flight_that_builds_on_what_is_found_corrupt_fails_and_the_next_one_is_whole(
    house: House,
) -> None:
    driver = house.pipeline(partitions=3)
    first = house.checkpoint(driver, events=3)
    driver.process(1)
    flying = house.in_flight(driver)
    damage(house, first)
    assert not verify(house.context, first).is_intact
    failure = house.get(flying).failure
    assert failure is not None
    assert failure.reason is FailureReason.BASE_CORRUPT
    assert str(first) in failure.message
    assert not failure.reason.counts
    assert set(driver.acknowledge(flying).values()) == {AckOutcome.LATE}
    assert verify(house.context, house.checkpoint(driver)).is_intact


def test_one_that_is_decided_when_its_base_is_found_corrupt_is_no_base_either(house: House) -> None:
    driver = house.pipeline(partitions=3, with_sink=True)
    first = house.checkpoint(driver, events=3)
    driver.process(1)
    decided = house.in_flight(driver)
    driver.acknowledge(decided)
    assert complete(house.context, decided).phase is Phase.COMMITTING
    damage(house, first)
    assert not verify(house.context, first).is_intact
    driver.commit(decided)
    assert (house.get(decided).phase, house.get(decided).verdict) == (Phase.COMPLETED, Verdict.CORRUPT)
    assert verify(house.context, house.checkpoint(driver)).is_intact


def test_what_was_repaired_is_a_base_again(house: House) -> None:
    driver = house.pipeline(partitions=3)
    first = house.checkpoint(driver, events=3)
    repair = damage(house, first)
    assert not verify(house.context, first).is_intact
    repair()
    assert verify(house.context, first).is_intact
    next_one = house.checkpoint(driver)
    assert any(f"files/1/{first.id}/" in path for path in load_manifest(house.context, house.get(next_one)).files)


# duplicates that a person has accepted


def _accepting(house: House) -> tuple[Ref, Ref]:
    """A pipeline whose second attempt starts behind what its sink has committed, by a person's consent."""
    driver = house.pipeline(with_sink=True)
    first, second = house.checkpoint(driver), house.checkpoint(driver)
    consent = Policy(accept_duplicates=frozenset({SINK}))
    assert house.restore(to=first.id, with_sink=True, policy=consent).attempt.restored_from == first.id
    house.driver(with_sink=True, claim="second").start()
    return first, second


def test_consent_to_duplicates_stays_until_a_checkpoint_completes(house: House) -> None:
    first, _ = _accepting(house)
    for number in (3, 4):
        restored = house.restore(with_sink=True)  # the driver has died before its next checkpoint
        assert (restored.attempt.restored_from, restored.attempt.accepted) == (first.id, frozenset({SINK}))
        assert restored.choice.price.accepted_before == (SINK,)
        driver = house.driver(with_sink=True, claim=f"driver {number}")
        driver.start()
    house.checkpoint(driver)
    with pytest.raises(Refused, match=f"--accept-duplicates {SINK}"):
        house.restore(to=first.id, with_sink=True)
    assert house.restore(with_sink=True).attempt.accepted == frozenset()


def test_consent_to_duplicates_goes_with_a_tip(house: House) -> None:
    first, _ = _accepting(house)
    assert house.restore(with_sink=True, tip_damage=lambda dead: None).attempt.accepted == {SINK}
    house.driver(with_sink=True, claim="third")
    house.store.attempts.claim(NAME, 3, "third", Graph((Query(name="totals"),)))
    lost = house.restore(with_sink=True, target=Target(rewind=True))  # and that tip is lost too
    assert (lost.attempt.restored_from, lost.attempt.accepted) == (first.id, frozenset({SINK}))


def test_consent_to_duplicates_does_not_reach_further_back_than_it_was_given_for(house: House) -> None:
    driver = house.pipeline(with_sink=True)
    first, second = house.checkpoint(driver), house.checkpoint(driver)
    house.checkpoint(driver)
    house.restore(to=second.id, with_sink=True, policy=Policy(accept_duplicates=frozenset({SINK})))
    house.driver(with_sink=True, claim="second").start()
    with pytest.raises(Refused, match=f"--accept-duplicates {SINK}"):
        house.restore(to=first.id, with_sink=True)
    assert house.restore(to=second.id, with_sink=True).attempt.accepted == {SINK}


# a driver that has just come up


class Meanwhile:
    """Something happens once, just before a call."""

    def __init__(self, call: str, do: Callable[[], object]) -> None:
        self._call = call
        self._do: Callable[[], object] | None = do

    def before(self, call: str) -> None:
        if call == self._call and self._do is not None:
            do, self._do = self._do, None
            do()

    def after(self, call: str) -> None: ...


@pytest.mark.parametrize("is_proven_dead", [False, True])
@pytest.mark.parametrize("call", ["leases.acquire_restore", "attempts.fence"])
def test_a_restore_does_not_fence_a_driver_that_has_come_up_since_it_looked(
    house: House, call: str, *, is_proven_dead: bool
) -> None:
    """Whoever says that the old attempt is dead does not mean the one after it."""
    driver = house.pipeline()
    house.checkpoint(driver)
    house.restore()
    second = house.driver(claim="second")
    store = watch_store(house.store, Meanwhile(call, second.start))
    with pytest.raises(Refused, match=f"Attempt 2 of {NAME} is alive .*--take-over"):
        restore(replace(house.context, store=store), NAME, RestoreOptions(is_proven_dead=is_proven_dead))
    assert second.tick().is_current
    assert house.store.leases.held(NAME) == []
    house.checkpoint(second)


def test_what_the_refusal_to_fence_a_living_driver_names_leads_out(wall_house: House, shell: Shell) -> None:
    driver = wall_house.pipeline(settings=replace(SETTINGS, attempt_ttl=timedelta(seconds=1)))
    wall_house.checkpoint(driver)
    driver.tick()
    assert shell.follow(shell.refused(f"restore {NAME}")) == [f"restore {NAME} --take-over"]
    assert wall_house.store.pipelines.get(NAME).current_attempt == 2


# leases


@pytest.mark.parametrize("kind", LeaseKind)
def test_a_lease_lasts_no_longer_than_its_time_to_live_where_the_clock_was_set_back(
    house: House, kind: LeaseKind
) -> None:
    driver = house.pipeline()
    house.checkpoint(driver)
    acquire = {
        LeaseKind.CLEANUP: house.store.leases.acquire_cleanup,
        LeaseKind.RESTORE: house.store.leases.acquire_restore,
    }
    lease = acquire[kind](NAME, owner="dead", token="t")
    house.pass_time(hours=-1)
    with pytest.raises(TryAgain):
        acquire[kind](NAME, owner="next", token="u")
    (held,) = house.store.leases.held(NAME)
    assert held.expires_at == house.store.checkpoints.now() + SETTINGS.lease_ttl
    house.store.leases.renew(lease)  # its holder may as well be alive
    house.pass_time(minutes=2, seconds=1)
    assert acquire[kind](NAME, owner="next", token="u").owner == "next"


def test_a_trigger_is_not_put_off_for_an_hour_by_a_lease_of_a_clock_that_was_set_back(house: House) -> None:
    driver = house.pipeline()
    house.store.leases.acquire_cleanup(NAME, owner="dead", token="t")
    house.pass_time(hours=-1)
    driver.tick()
    assert house.trigger().skipped is SkipReason.CLEANUP_ACTIVE
    house.pass_time(minutes=2, seconds=1)
    driver.tick()
    assert house.trigger().is_new


def test_whoever_asks_whether_a_restore_is_due_is_not_put_off_by_such_a_lease(house: House) -> None:
    house.checkpoint(house.pipeline())
    house.store.leases.acquire_restore(NAME, owner="dead", token="t")
    house.pass_time(hours=-1)
    assert diagnose(house.context, NAME, jitter=0.0).need is Need.NOTHING
    house.store.attempts.note_silence(actor="watcher")
    house.pass_time(minutes=2, seconds=1)
    assert diagnose(house.context, NAME, jitter=0.0).need is Need.RESTORE


def test_a_restore_waits_no_longer_than_the_time_to_live_where_the_clock_was_set_back(house: House) -> None:
    house.checkpoint(house.pipeline())
    house.pass_time(hours=-1)
    before = house.store.checkpoints.now()
    restore(house.context, NAME, RestoreOptions(take_over=True))
    assert house.store.checkpoints.now() - before == SETTINGS.attempt_ttl


def test_a_driver_that_died_before_the_clock_was_set_back_is_noticed_all_the_same(house: House) -> None:
    house.checkpoint(house.pipeline())
    house.pass_time(hours=-1)
    assert house.store.attempts.note_silence(actor="watcher") == []
    house.pass_time(minutes=1, seconds=1)
    assert [each.number for each in house.store.attempts.note_silence(actor="watcher")] == [1]


@pytest.mark.parametrize(
    ("kind", "command"), [("restore", "restore orders --old-attempt-is-dead"), ("cleanup", "cleanup orders")]
)
def test_a_lease_is_listed_and_broken_by_the_command_that_the_refusal_names(
    wall_house: House, shell: Shell, kind: str, command: str
) -> None:
    wall_house.checkpoint(wall_house.pipeline())
    leases = wall_house.store.leases
    acquire = leases.acquire_restore if kind == LeaseKind.RESTORE else leases.acquire_cleanup
    lease = acquire(NAME, owner="somebody", token="t")
    said = shell.refused(command)
    assert "somebody" in shell.run(f"leases list {NAME}")[1]
    shell.follow(said)
    broken = wall_house.store.events.last(NAME, f"{kind}.revoked")
    assert broken is not None
    assert "broken by a person" in broken.reason
    with pytest.raises(LeaseLost):
        leases.renew(lease)
    assert shell.run(command)[0] == ExitCode.DONE


def test_there_is_nothing_to_break(wall_house: House, shell: Shell) -> None:
    wall_house.pipeline()
    assert "has no leases" in shell.run(f"leases list {NAME}")[1]
    assert shell.run(f"leases break {NAME} restore")[0] == ExitCode.NOT_FOUND
