"""Python drivers and workers as forks of a process that has loaded what they need: that takes seconds each time.

`NURSERY.start` is to a test what `subprocess.Popen` is: the program runs as `__main__`, in a session of its own, with
exactly the environment that it is given. Of `PYTHONPATH` only a `sitecustomize.py` counts: the rest is loaded already.
`NURSERY.python` is to Spark what `python` is: it asks for a fork, hands its input and output over, and ends with it.
"""

import atexit
import ctypes
import gc
import importlib
import itertools
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_LOADED = (  # not pyiceberg, which reads the environment when it is loaded
    "airflow_provider_ckpt.spark.agent",
    "airflow_provider_ckpt.spark.sinks.delta",
    "airflow_provider_ckpt.spark.sinks.postgres",
    "airflow_provider_ckpt.storage.s3",
    "airflow_provider_ckpt.spark.persisting",
    "pandas",
    "pyspark.java_gateway",
    "pyspark.sql.functions",
    "pyspark.worker",
)
_LARGEST = 1_000_000  # bytes of an order
_TICK = 0.05  # seconds
_PDEATHSIG = 1
_CLIENT = """#!{python} -IS
import json, os, socket, sys

order = {{"command": sys.argv[1:], "environment": dict(os.environ), "session": os.getsid(0)}}
nursery = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
nursery.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {largest})
nursery.connect({address!r})
socket.send_fds(nursery, [json.dumps(order).encode()], [0, 1, 2])
nursery.recv(64)  # its pid
nursery.recv(1)  # nothing: it has ended
"""


class Fork:
    """A process that was started; `poll` and `wait` as `subprocess.Popen` has them."""

    def __init__(self, pid: int, ended: Path) -> None:
        self.pid = pid
        self._ended = ended  # its exit code, once there is one

    def poll(self) -> int | None:
        return int(self._ended.read_text()) if self._ended.exists() else None

    def wait(self, timeout: float | None = None) -> int:
        give_up = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if give_up is not None and time.monotonic() > give_up:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            time.sleep(_TICK)
        return code


class Nursery:
    """In the process that runs tests; begins with the first fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._socket: socket.socket | None = None
        self._folder = Path()

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], *, stdin: int, stdout: int, stderr: int
    ) -> Fork:
        """:param command: what follows the name of Python: a file or `-m` and a module, and arguments."""
        with self._lock:
            connection = self._connection()
            ended = self._folder / f"ended-{next(self._numbers)}"  # not by its pid: that is used again before long
            order = {"command": list(command), "environment": dict(environment), "ended": str(ended)}
            socket.send_fds(connection, [json.dumps(order).encode()], [stdin, stdout, stderr])
            pid = int(connection.recv(64))
        return Fork(pid, ended)

    @property
    def python(self) -> str:
        """A program that Spark can start its workers with."""
        with self._lock:
            self._connection()
        return str(self._folder / "python")

    def sessions_of(self, session: int) -> list[int]:
        """The workers that were started from a session, which have sessions of their own."""
        return [int(each.name) for each in self._folder.glob(f"workers/{session}/*")]

    def _connection(self) -> socket.socket:
        if self._socket is None:
            self._folder = Path(tempfile.mkdtemp(prefix="forks-"))
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LARGEST)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.harness.nursery", str(theirs.fileno()), str(self._folder)],
                    cwd=_ROOT,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            atexit.register(process.wait)
            atexit.register(ours.close)  # it ends when nobody is there to ask
            client = self._folder / "python"
            address = str(self._folder / "socket")
            client.write_text(_CLIENT.format(python=sys.executable, address=address, largest=2 * _LARGEST))
            client.chmod(0o700)
            self._socket = ours
        return self._socket


NURSERY = Nursery()


def die_with_parent() -> None:
    """Whatever ends the tests ends what they have started."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


# the process that is forked


class _Server:
    def __init__(self, connection: socket.socket, folder: Path) -> None:
        self._socket = connection
        self._folder = folder
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(folder / "socket"))
        self._listener.listen(64)
        self._on_end: dict[int, Path] = {}  # by pid: where its exit code goes, or the note that a worker is there
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker)

    def serve(self) -> Sequence[str] | None:
        """Returns twice and more: in every fork with what it has to run, and here when nobody asks any more."""
        while True:
            ready, _, _ = select.select([self._socket.fileno(), self._listener.fileno(), self._woken], [], [])
            self._note_ends()
            for each in ready:
                if each != self._woken:
                    asking = self._socket if each == self._socket.fileno() else self._listener.accept()[0]
                    data, fds, _, _ = socket.recv_fds(asking, _LARGEST, 3)
                    if not data and asking is self._socket:
                        return None
                    if data and (command := self._fork(asking, json.loads(data), fds)) is not None:
                        return command

    def _fork(self, asking: socket.socket, order: Mapping[str, Any], fds: Sequence[int]) -> list[str] | None:
        """What the fork has to run; None in the process that it was forked from."""
        if (pid := os.fork()) == 0:
            os.setsid()
            die_with_parent()
            if asking is not self._socket:
                self._lead_session()
                self.asking = asking  # open as long as it lives: so the client learns when it has ended
            self._become(order, fds)
            command: list[str] = order["command"]
            return command
        for fd in fds:
            os.close(fd)
        if asking is self._socket:
            self._on_end[pid] = Path(order["ended"])
        else:
            self._on_end[pid] = self._folder / "workers" / str(order["session"]) / str(pid)
            self._on_end[pid].parent.mkdir(parents=True, exist_ok=True)
            self._on_end[pid].touch()
        asking.send(str(pid).encode())
        if asking is not self._socket:
            asking.close()
        return None

    def _lead_session(self) -> None:
        """Returns in a process that is no leader: a worker makes a group of its own, which a leader can not."""
        signal.set_wakeup_fd(-1)
        if (worker := os.fork()) == 0:
            die_with_parent()
            return
        os.closerange(3, 1024)  # nobody waits for this process, which only holds the number of the session
        os.waitpid(worker, 0)
        os._exit(0)

    def _note_ends(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._woken, 1024)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                note = self._on_end.pop(ended[0])
                if note.exists():
                    note.unlink()
                    continue
                partial = note.with_suffix(".partial")
                partial.write_text(str(os.waitstatus_to_exitcode(ended[1])))
                partial.rename(note)

    def _become(self, order: Mapping[str, Any], fds: Sequence[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._socket.close()
        self._listener.close()
        for fd in (self._woken, self._waker):
            os.close(fd)
        for target, source in enumerate(fds):
            os.dup2(source, target)
        for fd in fds:
            os.close(fd)
        os.environ.clear()
        os.environ.update(order["environment"])


def _run(command: Sequence[str]) -> None:
    """As Python itself would run it."""
    for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if (own := Path(folder) / "sitecustomize.py").is_file():
            runpy.run_path(str(own))
    if command[0] == "-m":
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(command)
        sys.path[0] = str(Path(command[0]).parent)
        runpy.run_path(command[0], run_name="__main__")


def main(number: int, folder: Path) -> int:
    die_with_parent()
    for name in _LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is here stays shared with the forks
    server = _Server(socket.socket(fileno=number), folder)
    command = server.serve()
    if command is None:
        return 0
    try:
        _run(command)
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
