"""Forks of a process that has loaded what drivers need: they run as if Python had started them."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.harness.nursery import NURSERY, Fork
from tests.harness.processes import of_session

PROGRAM = """
import os, sys, time

if __name__ == "__main__":
    print(sys.argv[1:], os.environ.get("COLOUR"), os.environ.get("HOME"), os.getsid(0) == os.getpid())
    print(sys.stdin.read(), file=sys.stderr, flush=True)
    if "sleep" in sys.argv:
        time.sleep(60)
    sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def _start(program: Path, log: Path, *arguments: str, environment: dict[str, str] | None = None) -> Fork:
    said = program.with_suffix(".in")
    said.write_text("what it reads")
    with said.open("rb") as source, log.open("wb") as out:
        return NURSERY.start(
            [str(program), *arguments],
            environment or {},
            stdin=source.fileno(),
            stdout=out.fileno(),
            stderr=out.fileno(),
        )


def test_a_fork_runs_with_its_own_arguments_environment_input_and_exit_code(program: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert _start(program, log, "3", environment={"COLOUR": "blue"}).wait(60) == 3
    assert log.read_text().split("\n")[:2] == ["['3'] blue None True", "what it reads"]


def test_an_error_is_printed_and_ends_it_with_1(tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text("raise ValueError('so it is')")
    log = tmp_path / "log"
    assert _start(program, log).wait(60) == 1
    assert "ValueError: so it is" in log.read_text()


def test_a_fork_that_is_killed_says_by_which_signal(program: Path, tmp_path: Path) -> None:
    fork = _start(program, tmp_path / "log", "0", "sleep")
    assert fork.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        fork.wait(0.1)
    os.kill(fork.pid, signal.SIGKILL)
    assert fork.wait(60) == -signal.SIGKILL


def test_what_stands_in_for_python_hands_over_and_ends_with_its_fork(program: Path) -> None:
    done = subprocess.run(
        [NURSERY.python, str(program), "0"],
        env={**os.environ, "COLOUR": "green"},
        input="from a pipe",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        start_new_session=True,
    )
    assert "['0'] green" in done.stdout
    assert "from a pipe" in done.stderr


def test_workers_are_found_by_the_session_that_has_started_them(program: Path) -> None:
    command = [NURSERY.python, str(program), "0", "sleep"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as client:
        while not (found := _workers_of(client.pid)):
            assert client.poll() is None
        os.kill(found[0], signal.SIGKILL)
        assert client.wait(60) == 0
        while NURSERY.sessions_of(client.pid):  # its number may be another process's before long
            time.sleep(0.01)


def _workers_of(session: int) -> list[int]:
    """Without the process that leads their session."""
    return [each.pid for own in NURSERY.sessions_of(session) for each in of_session(own) if each.pid != own]
