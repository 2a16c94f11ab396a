"""Whatever ends a test run (its end, Ctrl-C, kill -9): no process, no port and no folder of it is left.

Everything that a run starts inherits a mark in its environment, and every temporary file goes below one folder. A small
process waits until pytest is gone, ends what has the mark or writes there, and removes it, unless `KEEP=1` is set.
"""

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.harness.processes import MARK, kill, started_by

LOOK_EVERY = 0.5
PATIENCE = 30.0  # seconds, for processes to be gone


class Sweeper:
    """In pytest: marks what is started from here on, and says when everything is over."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ckpt-"))  # a short path: sockets must fit into 107 bytes
        self.run = f"{os.getpid()}-{self.folder.name}"
        os.environ.pop(MARK, None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.sweeper", self.run, str(self.folder)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is not for it
        )
        os.environ.update({MARK: self.run, "TMPDIR": str(self.folder), "SPARK_LOCAL_DIRS": str(self.folder)})
        tempfile.tempdir = None  # look at the environment again

    def finish(self) -> None:
        """Everything is over: wait until it is swept."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def sweep(run: str, folder: Path) -> None:
    give_up = time.monotonic() + PATIENCE
    while (left := started_by(run, folder)) and time.monotonic() < give_up:
        kill(left)
        time.sleep(0.05)
    if os.environ.get("KEEP") != "1":
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for_the_end_of(parent: int) -> None:
    """Its end of the pipe is closed, or it is gone while a child of it holds that end."""
    while os.getppid() == parent:
        if select.select([sys.stdin], [], [], LOOK_EVERY)[0]:
            return


if __name__ == "__main__":
    _wait_for_the_end_of(int(sys.argv[1].partition("-")[0]))
    sweep(sys.argv[1], Path(sys.argv[2]))
