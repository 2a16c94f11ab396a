"""Where a pipeline could get stuck: what is refused names a command, and following it to the letter leads out."""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_provider_ckpt.cli import ExitCode, main
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Ref
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
    for file in files_of(wall_house, newest):
        file.chmod(0o644)
        file.write_bytes(b"")
    assert shell.run(f"verify {newest}")[0] == ExitCode.CORRUPT
    assert shell.run(f"cleanup {NAME} --discard {newest.id}")[0] == ExitCode.DONE
    with pytest.raises(Exception, match="is not there any more") as refused:
        wall_house.restore(with_sink=True)
    assert f"--to {newest.id}" not in str(refused.value)
