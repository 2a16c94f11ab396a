"""A real Airflow for tests and demos: scheduler, triggerer, Dag processor and API server, each a process to be killed.

Everything of one Airflow lives below one folder and in one environment, on free ports, reachable from this host only.
It needs the `airflow` extra; nothing of Airflow is imported here.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import psutil

COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
_BIN = Path(sys.executable).parent
_START_PATIENCE = 240.0  # seconds
_ASK_PATIENCE = 30.0
_Found = TypeVar("_Found")


class Airflow:
    """One Airflow with its own folder.

    ::

        with Airflow(Path("/tmp/af"), dags=Path("dags"), environment={}) as airflow:
            print(airflow.url, airflow.runs("orders__checkpoint"))

    :param folder: its AIRFLOW_HOME.
    :param dags: its Dags; they are not paused when they are found.
    :param database_url: of Airflow itself; None: SQLite.
    :param environment: more for all its processes: connections, and what the Dags ask for.
    """

    def __init__(
        self, folder: Path, dags: Path, *, environment: Mapping[str, str], database_url: str | None = None
    ) -> None:
        self.folder = folder
        self.url = f"http://localhost:{free_port()}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._sessions: list[int] = []
        self._bearer: str | None = None
        folder.mkdir(parents=True, exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        settings = {f"AIRFLOW__{name}": value for name, value in _settings(self.url, dags, database_url).items()}
        self.environment = {
            **inherited,
            "PATH": f"{_BIN}:{os.environ.get('PATH', '')}",
            "PYSPARK_PYTHON": sys.executable,
            "AIRFLOW_HOME": str(folder),
            **settings,
            **environment,
        }

    def __enter__(self) -> "Airflow":
        self.migrate()
        for component in COMPONENTS:
            self.start(component)
        self._wait_for_api()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything that it has started, and what that has started."""
        for leader in [*self._sessions, *self.drivers()]:
            end_session(leader)
        for process in self.processes.values():
            process.wait()

    def migrate(self) -> None:
        """Make the tables of its database."""
        self.run("db", "migrate")

    # its processes

    def start(self, component: str) -> None:
        with (self.folder / f"{component}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own command
                [str(_BIN / "airflow"), component],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes[component] = process
        self._sessions.append(process.pid)

    def kill(self, component: str) -> None:
        """With -9, the one process: what it has started lives on, as when a host's memory runs out."""
        self.processes[component].kill()
        self.processes[component].wait()

    def run(self, *arguments: str) -> str:
        """A command of `airflow`."""
        done = subprocess.run(  # noqa: S603 - our own command
            [str(_BIN / "airflow"), *arguments], env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"airflow {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def drivers(self) -> list[int]:
        """The JVMs of its Spark drivers, each of which leads a session of its own."""
        return [each.pid for each in psutil.process_iter() if self._is_driver(each)]

    def kill_drivers(self) -> list[int]:
        """With -9: the JVMs, and the Python processes beside them."""
        pids = self.drivers()
        for pid in pids:
            end_session(pid)
        return pids

    def kill_task(self) -> None:
        """With -9: the task that holds the one driver, which lives on."""
        (driver,) = self.drivers()
        holder = psutil.Process(driver).parent()
        if holder is not None:
            holder.kill()

    def _is_driver(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            is_jvm = process.name() == "java" and any("SparkSubmit" in each for each in process.cmdline())
            return bool(is_jvm and process.environ().get("AIRFLOW_HOME") == str(self.folder))
        return False

    # its API

    def get(self, path: str) -> Any:
        return self._ask(Request(f"{self.url}{path}"))  # noqa: S310 - our own server

    def send(self, method: str, path: str, document: object) -> Any:
        body, headers = json.dumps(document).encode(), {"Content-Type": "application/json"}
        return self._ask(Request(f"{self.url}{path}", body, headers, method=method))  # noqa: S310 - our own server

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"/api/v2/dags/{dag_id}/dagRuns?limit=200")["dag_runs"]
        return found

    def tasks(self, dag_id: str, run_id: str) -> dict[str, str]:
        """The state of each task of a run."""
        found = self.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return {each["task_id"]: each["state"] for each in found}

    def states(self, dag_id: str, task_id: str) -> Counter[str]:
        """How often a task has come to which state."""
        found = self.get(f"/api/v2/dags/{dag_id}/dagRuns/~/taskInstances?limit=500")["task_instances"]
        return Counter(str(each["state"]) for each in found if each["task_id"] == task_id)

    def trigger(self, dag_id: str, conf: Mapping[str, object] | None = None) -> str:
        document = {"logical_date": None, "conf": dict(conf or {})}
        return str(self.send("POST", f"/api/v2/dags/{dag_id}/dagRuns", document)["dag_run_id"])

    def state(self, dag_id: str, run_id: str) -> str:
        """Of a run."""
        return str(self.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def clear(self, dag_id: str, run_id: str) -> None:
        """Every task of a run, which then runs again."""
        self.send("POST", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/clear", {"dry_run": False, "only_failed": False})

    def asked(self, dag_id: str, run_id: str, task_id: str) -> str:
        """What a task asks a person."""
        return str(self.get(_question(dag_id, run_id, task_id))["body"])

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """As a person does in the UI."""
        self.send("PATCH", _question(dag_id, run_id, task_id), {"chosen_options": [option], "params_input": {}})

    def pause(self, dag_id: str, *, is_paused: bool) -> None:
        self.send("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": is_paused})

    def logs(self, dag_id: str, task_id: str) -> str:
        runs = self.folder / "logs" / f"dag_id={dag_id}"
        return "\n".join(file.read_text() for file in sorted(runs.glob(f"run_id=*/task_id={task_id}/*.log*")))

    def _ask(self, request: Request) -> Any:
        """An Airflow on SQLite answers 500 while its database is locked: it has done nothing, and is asked again."""
        if self._bearer is None:
            self._bearer = self._token()
        request.add_header("Authorization", f"Bearer {self._bearer}")
        for pause in (0.5, 1.0, 2.0, None):
            try:
                with urlopen(request, timeout=_ASK_PATIENCE) as answer:  # noqa: S310 - our own server
                    return json.loads(answer.read() or b"null")
            except HTTPError as error:
                if error.code != HTTPStatus.INTERNAL_SERVER_ERROR or pause is None:
                    said = error.read()[:500]
                    raise RuntimeError(f"{request.method} {request.full_url}: {error.code} {said!r}") from error
                time.sleep(pause)
        return None

    def _token(self) -> str:
        with urlopen(f"{self.url}/auth/token", timeout=_ASK_PATIENCE) as answer:  # noqa: S310 - our own server
            token: str = json.loads(answer.read())["access_token"]
            return token

    def _wait_for_api(self) -> None:
        def is_there() -> bool:
            with suppress(URLError, OSError):
                return bool(self._token())
            return False

        until(is_there, f"Airflow answers at {self.url}; its logs are in {self.folder}", patience=_START_PATIENCE)


def until(
    look: Callable[[], _Found], what: str, say: Callable[[], str] = str, *, patience: float = _START_PATIENCE
) -> _Found:
    """What is found in the end.

    :raises TimeoutError: when nothing was found in time, with what `say` says then.
    """
    give_up = time.monotonic() + patience
    while not (found := look()):
        if time.monotonic() > give_up:
            raise TimeoutError(f"Waited {patience:.0f} s until {what}.\n{say()}")
        time.sleep(0.5)
    return found


def end_session(leader: int) -> None:
    """Every process of a session, with -9: tasks and drivers have groups of their own."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == leader:
                os.kill(process.pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port: int = found.getsockname()[1]
        return port


def _question(dag_id: str, run_id: str, task_id: str) -> str:
    return f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"


def _settings(url: str, dags: Path, database_url: str | None) -> dict[str, str]:
    names = ("DATABASE__SQL_ALCHEMY_CONN", "DATABASE__SQL_ALCHEMY_CONN_ASYNC")
    return {
        **({} if database_url is None else dict.fromkeys(names, database_url)),
        "CORE__DAGS_FOLDER": str(dags),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__PARALLELISM": "4",
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "CORE__FERNET_KEY": "",
        "API__HOST": "127.0.0.1",
        "API__PORT": url.rpartition(":")[2],
        "API__BASE_URL": url,
        "API__WORKERS": "1",
        "API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "DAG_PROCESSOR__REFRESH_INTERVAL": "15",
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "60",
        "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    }
