"""A storage that a test can make slow or unreliable while drivers run; Python imports this by itself at its start.

The stage puts this folder on the path of a driver and of its Python workers. The file that HOSTILE names says what
befalls every call of a local storage, but those for a sink's own notes: `slow 0.5` (seconds), `every 3` (fails), both,
or nothing; `hold totals` lets calls for paths that contain that word wait for as long as it says so. Calls are counted
over all processes by the size of a second file; a third one names the process that waits for a slow storage.
"""

import os
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from airflow_provider_ckpt.protocol.errors import Unreachable
from airflow_provider_ckpt.storage.local import LocalStorage

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_CALLS = ("create", "read", "open", "put_file", "fetch", "copy", "stat")


def _hostile(call: Callable[_Parameters, _Result], orders: Path) -> Callable[_Parameters, _Result]:
    @wraps(call)
    def suffer(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        told = {} if any(str(each).startswith(".ckpt/") for each in args) else _told(orders)
        while "hold" in told and any(told["hold"] in str(each) for each in args):
            time.sleep(0.1)
            told = _told(orders)
        if "slow" in told:
            orders.with_suffix(".caller").write_text(f"{os.getpid():>9}")
            time.sleep(float(told["slow"]))
        if "every" in told and _count(orders.with_suffix(".calls")) % int(told["every"]) == 0:
            raise Unreachable(f"The storage did not answer to {call.__name__}, as it was told.")
        return call(*args, **kwargs)

    return suffer


def _told(orders: Path) -> dict[str, str]:
    words = orders.read_text().split() if orders.exists() else []
    return dict(zip(words[::2], words[1::2], strict=True))


def _count(file: Path) -> int:
    with file.open("ab") as counter:
        counter.write(b".")
        counter.flush()
        return counter.tell()


if "HOSTILE" in os.environ:
    for _name in _CALLS:
        setattr(LocalStorage, _name, _hostile(getattr(LocalStorage, _name), Path(os.environ["HOSTILE"])))
