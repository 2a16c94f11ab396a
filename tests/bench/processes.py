"""Work in processes of their own: many that start at once, or one whose memory is looked at."""

import gc
import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from .measure import Seconds

_Result = TypeVar("_Result")
_fork = multiprocessing.get_context("fork")  # nothing to import again; no thread is running when we fork


class Worker(Protocol):
    """Prepares itself, and hands back the work that is to be timed."""

    def __call__(self) -> Callable[[], None]: ...


def race(workers: Sequence[Worker]) -> Seconds:
    """Run all at once, each in its own process; from the first start to the last end."""
    barrier, spans = _fork.Barrier(len(workers)), _fork.SimpleQueue()

    def run(worker: Worker) -> None:
        work = worker()
        barrier.wait()
        began = time.monotonic()
        work()
        spans.put((began, time.monotonic()))

    _finish([_fork.Process(target=run, args=(worker,)) for worker in workers])
    found: list[tuple[float, float]] = [spans.get() for _ in workers]
    return max(end for _, end in found) - min(began for began, _ in found)


def alone(work: Callable[[], _Result]) -> tuple[_Result, int]:
    """Do it in a child; the result, and by how many bytes the child's memory grew at most."""
    answers = _fork.SimpleQueue()

    def run() -> None:
        gc.collect()
        before = _peak_bytes()
        answers.put((work(), _peak_bytes() - before))

    child = _fork.Process(target=run)
    child.start()
    answer: tuple[_Result, int] = answers.get()  # before the join: a large answer does not fit into the pipe
    child.join()
    return answer


def _finish(children: Sequence[multiprocessing.process.BaseProcess]) -> None:
    for child in children:
        child.start()
    for child in children:
        child.join()
    failed = [child.exitcode for child in children if child.exitcode]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(children)} processes ended with {failed[0]}; see above.")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
