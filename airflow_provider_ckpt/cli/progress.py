"""Progress bars: on standard error, and only where that is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from airflow_provider_ckpt.cli.writing import one_line
from airflow_provider_ckpt.coordinator.follow import Seen


@contextmanager
def counting_bytes(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Hand out what hears of every chunk; any thread may call it."""
    with _progress(DownloadColumn(binary_units=True)) as progress:
        task = progress.add_task(what, total=total, waits_for="")
        yield lambda count: progress.advance(task, count)


@contextmanager
def counting_files(what: str) -> Iterator[Callable[[int, int], None]]:
    """Hand out what hears how many of how many are done."""
    with _progress(MofNCompleteColumn()) as progress:
        task = progress.add_task(what, total=None, waits_for="")
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def listing_files(what: str) -> Iterator[Callable[[], None]]:
    with _progress(MofNCompleteColumn()) as progress:
        task = progress.add_task(what, total=None, waits_for="")
        yield lambda: progress.advance(task)


@contextmanager
def following() -> Iterator[Callable[[Seen], None]]:
    """Hand out what draws how far a checkpoint is and who is late."""
    with _progress(MofNCompleteColumn()) as progress:
        task = progress.add_task("", total=None, waits_for="")

        def draw(seen: Seen) -> None:
            progress.update(
                task,
                description=f"{seen.checkpoint.ref} {seen.checkpoint.phase}",
                completed=seen.acked,
                total=seen.expected,
                waits_for=_waits_for(seen),
            )

        yield draw


def _waits_for(seen: Seen) -> str:
    return one_line(f"waits for {', '.join(seen.waits_for)}") if seen.waits_for else ""


def _progress(*columns: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *columns,
        TimeElapsedColumn(),
        TextColumn("{task.fields[waits_for]}", markup=False),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
