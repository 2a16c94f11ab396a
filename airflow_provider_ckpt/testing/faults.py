"""Stores and storages that crash or fail on purpose, before or after any call.

`watch_store` and `watch_storage` give an object with the same interface as the real one. Before and after every call a
hook is asked: it may count, raise, or kill the process. Between "after" and the caller nothing else happens, so a crash
there is a crash between two writes.
"""

import os
import signal
from collections.abc import Callable
from typing import NoReturn, Protocol, TypeVar, cast

from airflow_provider_ckpt.metastore import Metastore
from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.storage.base import Storage

Call = str  # "checkpoints.decide", "storage.create"
_Result = TypeVar("_Result")


class Crashed(BaseException):
    """The process would be gone now. Not an Exception: no handler on the way may swallow it."""


def kill_this_process() -> NoReturn:
    """End like `kill -9` from outside: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _crash() -> NoReturn:
    raise Crashed


class Hook(Protocol):
    def before(self, call: Call) -> None: ...

    def after(self, call: Call) -> None: ...


class Recorder:
    """Writes down the calls that were made."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def before(self, call: Call) -> None:
        self.calls.append(call)

    def after(self, call: Call) -> None: ...


class CrashAt:
    """Crashes at the n-th moment, counted from 0: two moments for each call, before it and after it."""

    def __init__(self, moment: int, crash: Callable[[], NoReturn] = _crash) -> None:
        self._left = moment
        self._crash = crash

    def before(self, call: Call) -> None:  # noqa: ARG002
        self._count()

    def after(self, call: Call) -> None:  # noqa: ARG002
        self._count()

    def _count(self) -> None:
        if self._left == 0:
            self._crash()
        self._left -= 1


class FailEvery:
    """Makes every n-th call fail before it does anything."""

    def __init__(self, n: int, error: Callable[[], CkptError]) -> None:
        self._n = n
        self._error = error
        self._calls = 0

    def before(self, call: Call) -> None:  # noqa: ARG002
        self._calls += 1
        if self._calls % self._n == 0:
            raise self._error()

    def after(self, call: Call) -> None: ...


def watch_store(store: Metastore, hook: Hook) -> Metastore:
    """The same store; every call of every noun passes the hook."""
    nouns = {name: _Watched(noun, name, hook) for name, noun in vars(store).items() if name != "engine"}
    return cast("Metastore", _Nouns(store, nouns))


def watch_storage(storage: Storage, hook: Hook) -> Storage:
    """The same storage; every call passes the hook."""
    return cast("Storage", _Watched(storage, "storage", hook))


class _Nouns:
    def __init__(self, store: Metastore, nouns: dict[str, "_Watched"]) -> None:
        self.engine = store.engine
        self.__dict__.update(nouns)


class _Watched:
    def __init__(self, target: object, name: str, hook: Hook) -> None:
        self._target = target
        self._name = name
        self._hook = hook

    def __getattr__(self, name: str) -> object:
        attribute = getattr(self._target, name)
        return self._wrap(name, attribute) if callable(attribute) else attribute

    def _wrap(self, name: str, method: Callable[..., _Result]) -> Callable[..., _Result]:
        def call(*args: object, **kwargs: object) -> _Result:
            what = f"{self._name}.{name}"
            self._hook.before(what)
            result = method(*args, **kwargs)
            if what in _LAZY:
                result = cast("_Result", iter(list(cast("list[object]", result))))
            self._hook.after(what)
            return result

        return call


_LAZY = frozenset({"storage.list", "storage.partials"})  # done when they return, not when they are read
