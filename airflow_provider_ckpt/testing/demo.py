"""`make demo`: a pipeline is checkpointed, killed with -9 and brought back; nothing is lost, nothing is doubled.

Everything is done through the `ckpt` command, in processes of their own, on the embedded defaults (SQLite and a local
folder). The pipeline is the scripted one. What it publishes is read as an outside reader would, and compared row by row
with what an undisturbed run publishes.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_provider_ckpt.storage.local import LocalStorage
from airflow_provider_ckpt.testing.scripted import ScriptedSink, truth

_PARTITIONS = 4
_CKPT = (sys.executable, "-m", "airflow_provider_ckpt.cli")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="ckpt-demo-") as folder:
        return _Demo(Path(folder)).run()


class _Demo:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._environment = {**os.environ, "CKPT_HOME": str(home), "CKPT_METASTORE": "", "CKPT_STORAGE": ""}

    def run(self) -> int:
        _title("A store, a storage and a pipeline")
        self._ckpt("init", "orders", "--set", "attempt_ttl=2s", "keep_last=2", "orphan_grace=0s")
        with self._playing() as driver:
            _title("Three checkpoints and a savepoint of the running pipeline")
            for _ in range(3):
                self._ckpt("trigger", "orders")
            self._ckpt("savepoint", "orders", "before-upgrade", "--reason", "to show that it stays")
            _title("Retention lets go what it does not keep")
            self._ckpt("cleanup", "orders")
            _title(f"kill -9 of the driver, process {driver.pid}, in the middle of a checkpoint")
            self._ckpt("trigger", "orders", "--no-wait")
            driver.send_signal(signal.SIGKILL)
        self._ckpt("restore", "orders", "--old-attempt-is-dead")
        with self._playing():
            _title("It goes on where the newest completed checkpoint was")
            self._ckpt("trigger", "orders")
            self._ckpt("pipelines", "orders", "--stop", "--reason", "the end of the demo")
        self._ckpt("list", "orders")
        self._ckpt("verify", "orders")
        return self._compare()

    def _ckpt(self, *words: str) -> None:
        print(f"\n\033[1m$ ckpt {' '.join(words)}\033[0m", flush=True)
        done = subprocess.run([*_CKPT, *words], env=self._environment, check=False)  # noqa: S603 - our own command
        if done.returncode != 0:
            raise SystemExit(f"`ckpt {' '.join(words)}` ended with {done.returncode}.")

    @contextmanager
    def _playing(self) -> Iterator[subprocess.Popen[bytes]]:
        print("\n\033[1m$ ckpt play orders &\033[0m", flush=True)
        words = [*_CKPT, "play", "orders", "--partitions", str(_PARTITIONS)]
        with subprocess.Popen(words, env=self._environment, start_new_session=True) as driver:  # noqa: S603
            try:
                self._wait_until_it_runs(driver)
                yield driver
                driver.wait(30)
            finally:
                if driver.poll() is None:
                    driver.kill()

    def _wait_until_it_runs(self, driver: subprocess.Popen[bytes]) -> None:
        words = [*_CKPT, "pipelines", "orders", "--json"]
        for _ in range(100):
            shown = subprocess.run(words, env=self._environment, check=True, capture_output=True)  # noqa: S603
            attempt = json.loads(shown.stdout).get("attempt") or {}
            if attempt.get("status") == "running":
                return
            if driver.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit("The scripted pipeline did not start.")

    def _compare(self) -> int:
        _title("What an outside reader of the target sees, against the truth")
        published = ScriptedSink(LocalStorage(self._home / "storage")).read("orders")
        expected = truth(max((event for event, _ in published), default=0), _PARTITIONS)
        lost, doubled = Counter(expected) - Counter(published), Counter(published) - Counter(expected)
        print(f"{len(published):,} rows published: lost {lost.total()}, duplicated {doubled.total()}")
        return 1 if lost or doubled or not published else 0


def _title(text: str) -> None:
    print(f"\n\033[36m── {text}\033[0m", flush=True)


if __name__ == "__main__":
    sys.exit(main())
