"""Where a pipeline could get stuck: what is refused names a command, and following it to the letter leads out."""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_provider_ckpt.cli import ExitCode, main
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.coordinator.verify import verify
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import AckOutcome, FailureReason
from airflow_provider_ckpt.protocol.records import Ref, Verdict
from airflow_provider_ckpt.testing import ScriptedPipeline, truth
from tests.house import NAME, House

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
    with pytest.raises(Exception, match="is not there any more") as refused:
        wall_house.restore(with_sink=True)
    assert f"--to {newest.id}" not in str(refused.value)


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
