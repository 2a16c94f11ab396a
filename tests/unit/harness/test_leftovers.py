"""Whatever ends a test run, nothing of it is left; what fails or hangs shows what its processes said last."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.processes import MARK, processes

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
TEST = """
import subprocess, sys, time
from pathlib import Path

def start(folder):
    with (folder / "driver-0.log").open("wb") as log:
        for setproctitle in ("", "import setproctitle; setproctitle.setproctitle({token!r} + 'x' * 9000); "):
            program = setproctitle + "import time; print('at gate 7', flush=True); time.sleep(1000)"
            subprocess.Popen([sys.executable, "-c", program, {token!r}], stdout=log, start_new_session=True)
    while (folder / "driver-0.log").read_text().count("gate") < 2:
        time.sleep(0.05)

def test_it(tmp_path):
    start(tmp_path)
    print("started", flush=True)
    {then}
"""


class Run:
    """pytest as a person runs it, on one test that starts processes in sessions of their own; one takes a title."""

    def __init__(self, folder: Path, then: str, *options: str) -> None:
        self.token = f"token-{folder.name}"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        (folder / "test_one.py").write_text(TEST.format(token=self.token, then=then))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment = {**environment, "TMPDIR": str(self.temporary)}
        environment.pop(MARK)
        command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-s", *options]
        self.process = subprocess.Popen(
            [*command, str(folder / "test_one.py")],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def until_started(self) -> None:
        assert self.process.stdout is not None
        assert any("started" in line for line in self.process.stdout), "it ended before"
        assert len(self.living()) == 2, "the test has started two processes"

    def living(self) -> list[int]:
        return [each.pid for each in processes() if not each.is_over and self.token in each.command()]

    def nothing_is_left(self) -> bool:
        give_up = time.monotonic() + 30
        while time.monotonic() < give_up:
            if not self.living() and not list(self.temporary.iterdir()):
                return True
            time.sleep(0.1)
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_a_run_that_is_interrupted_leaves_no_process_and_no_folder(tmp_path: Path, number: int) -> None:
    run = Run(tmp_path, "time.sleep(1000)")
    run.until_started()
    os.kill(run.process.pid, number)
    run.process.communicate(timeout=60)
    assert run.nothing_is_left(), run.living()


def test_a_test_that_hangs_ends_by_its_limit_and_shows_what_its_process_said_last(tmp_path: Path) -> None:
    run = Run(tmp_path, "time.sleep(1000)", "-o", "timeout=2")
    said, _ = run.process.communicate(timeout=120)
    assert run.process.returncode == pytest.ExitCode.TESTS_FAILED
    assert "Timeout" in said
    assert "last lines of driver-0.log" in said
    assert "at gate 7" in said
    assert run.nothing_is_left(), run.living()


def test_a_test_that_fails_shows_what_its_process_said_last_and_leaves_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, "assert False")
    said, _ = run.process.communicate(timeout=120)
    assert run.process.returncode == pytest.ExitCode.TESTS_FAILED
    assert "at gate 7" in said
    assert run.nothing_is_left(), run.living()
