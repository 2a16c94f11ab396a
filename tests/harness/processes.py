"""The processes of this machine, as Linux shows them: who started whom, in which session, with which mark."""

import os
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")
MARK = "CKPT_TEST_RUN"  # in the environment of everything that a test run starts, directly or not


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    pid: int
    state: str
    parent: int
    session: int
    processor: float  # seconds that it has used
    start: int  # in ticks since the machine started: a pid that is used again is another process

    @property
    def is_over(self) -> bool:
        return self.state in "ZX"

    def command(self) -> str:
        """Empty when it has ended."""
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
        return ""

    def mark(self) -> str | None:
        with suppress(OSError):
            given = Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
            found = [each.partition(b"=")[2] for each in given if each.startswith(f"{MARK}=".encode())]
            return found[0].decode() if found else None
        return None

    def writes_into(self, folder: Path) -> bool:
        """Whether its output goes there."""
        for number in (1, 2):
            with suppress(OSError):
                if str(Path(f"/proc/{self.pid}/fd/{number}").readlink()).startswith(f"{folder}/"):
                    return True
        return False


def processes() -> Iterator[Process]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended while we look
            yield _read(int(folder.name))


def _read(pid: int) -> Process:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Process(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        processor=(int(fields[11]) + int(fields[12])) * TICK,
        start=int(fields[19]),
    )


def below(running: Mapping[int, Process], roots: set[int]) -> set[int]:
    """The roots and everything that they started."""
    children: dict[int, list[int]] = defaultdict(list)
    for process in running.values():
        children[process.parent].append(process.pid)
    found, left = set(roots), list(roots)
    while left:
        new = set(children[left.pop()]) - found
        found |= new
        left += new
    return found


def of_session(leader: int) -> list[Process]:
    """Of a driver: itself, its JVM, and the Python workers, which have groups of their own."""
    return [process for process in processes() if process.session == leader]


def signal_session(leader: int, number: int) -> None:
    for process in of_session(leader):
        with suppress(OSError):
            os.kill(process.pid, number)


def started_by(run: str, folder: Path) -> list[Process]:
    """Everything that a test run has started and that has not ended: it has its mark, or writes into its folder.

    A process that gives itself a title, as Airflow's do, writes over its environment, and so over the mark.
    """
    return [each for each in processes() if not each.is_over and (each.mark() == run or each.writes_into(folder))]


def kill(found: list[Process]) -> None:
    for process in found:
        with suppress(OSError):
            os.kill(process.pid, signal.SIGKILL)
