"""Runs tests in a private copy of the tree, with a bug in it or without."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.bug import Bug

ROOT = Path(__file__).parents[2]
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "*_cache", ".hypothesis", ".ckpt", "dist", "build")
_LIMIT = 900  # seconds for the tests of one bug: pytest's own limit for a test comes first
_GRACE = 60  # seconds in which pytest ends what it has started
_FAILED = re.compile(r"^FAILED (\S+?::\w+(?:::\w+)?(?:\[.*?\])?)(?: - |$)", re.MULTILINE)
_PASSED, _TESTS_FAILED = 0, 1  # pytest's exit codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What pytest said of some tests; without a code it did not end in time."""

    code: int | None
    output: str
    seconds: float

    @property
    def has_passed(self) -> bool:
        return self.code == _PASSED

    @property
    def failed(self) -> str | None:
        """The first test that has failed; a test that could not be collected or set up has found nothing."""
        found = _FAILED.search(self.output) if self.code == _TESTS_FAILED else None
        return found and found.group(1)

    @property
    def why_nothing(self) -> str:
        if self.code is None:
            return f"they did not end in {_LIMIT} s"
        return "they pass" if self.has_passed else f"pytest ended with {self.code}, and no test failed by itself"


@contextmanager
def a_copy(of: Path = ROOT) -> Iterator[Path]:
    """A private copy of everything that tests read, with what Python has compiled: a planted file is newer."""
    with tempfile.TemporaryDirectory(prefix="ckpt-mutants-", ignore_cleanup_errors=True) as folder:
        yield Path(shutil.copytree(of, Path(folder) / "tree", ignore=_LEFT_OUT))


def run_with(bug: Bug, original: Path) -> Run:
    with a_copy(original) as tree:
        bug.plant(tree)
        return run(tree, bug.tests, "-x")


def run(tree: Path, tests: Sequence[str], *options: str) -> Run:
    """In a process of its own, which takes along what it has started when it is interrupted."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--tb=short", "-p", "no:cacheprovider", *options]
    began = time.monotonic()
    with subprocess.Popen(
        [*command, *tests],
        cwd=tree,
        env=_environment(tree),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        code, output = _follow(process)
    return Run(code=code, output=output, seconds=time.monotonic() - began)


def _environment(tree: Path) -> dict[str, str]:
    """As it is, but drivers that tests start import the copy as well, and what is compiled once is kept."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(tree)}


def _follow(process: subprocess.Popen[str]) -> tuple[int | None, str]:
    try:
        output, _ = process.communicate(timeout=_LIMIT)
    except subprocess.TimeoutExpired:
        return None, _end(process)
    except BaseException:
        _end(process)
        raise
    return process.returncode, output


def _end(process: subprocess.Popen[str]) -> str:
    """As Ctrl-C does, so that fixtures end their servers; then for certain."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        return process.communicate(timeout=_GRACE)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]
