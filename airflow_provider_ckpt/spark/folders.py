"""Where an attempt works: a folder of its own, so that no older attempt can write into it.

::

    <work>/<pipeline>/<attempt>/queries/<query>       the query's checkpointLocation; <attempt>.sealed once it is a tip
                                channels/<channel>    what one query writes and another reads, by Spark's file sink
                                described/<query>     what the query is made of, and joined to
                                held/<checkpoint>     second names of what a checkpoint is about to copy
                                laid_out.json         checksums of what it started from
                                staged/<query>        what a sink has staged and no checkpoint has published
                                scratch/<query>       where a batch is written before it is sent elsewhere
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from airflow_provider_ckpt.protocol.errors import Misused


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFolder:
    work: Path
    pipeline: str
    attempt: int
    is_sealed: bool = False

    def __post_init__(self) -> None:
        check_plain(self.work)

    @property
    def root(self) -> Path:
        return self.written_as.with_name(f"{self.attempt}.sealed") if self.is_sealed else self.written_as

    @property
    def written_as(self) -> Path:
        """The root as Spark has written it into its logs."""
        return self.work / self.pipeline / str(self.attempt)

    def location(self, query: str) -> Path:
        return self.root / "queries" / query

    def channel(self, name: str) -> Path:
        return self.root / "channels" / name

    def channel_at(self, path: str) -> str | None:
        """Which channel a path leads to; None when it is none of this attempt's."""
        folder = Path(path.removeprefix("file://"))
        return folder.name if folder == self.channel(folder.name) else None

    def described(self, query: str) -> Path:
        return self.root / "described" / f"{query}.json"

    @property
    def descriptions(self) -> Iterator[Path]:
        return self.root.glob("described/*.json")

    @property
    def locations(self) -> Iterator[Path]:
        return self.root.glob("queries/*")

    @property
    def known(self) -> Path:
        return self.root / "known.json"

    def held(self, checkpoint: int) -> Path:
        return self.root / "held" / str(checkpoint)

    def staged(self, query: str) -> Path:
        return self.root / "staged" / query

    def scratch(self, query: str) -> Path:
        return self.root / "scratch" / query

    @property
    def laid_out(self) -> Path:
        return self.root / "laid_out.json"

    def of(self, attempt: int) -> "AttemptFolder":
        return AttemptFolder(work=self.work, pipeline=self.pipeline, attempt=attempt)

    def left(self) -> "AttemptFolder":
        """What an attempt has left: sealed, where a newer one has begun to start from it."""
        sealed = replace(self, is_sealed=True)
        return sealed if sealed.root.exists() else self

    def seal(self) -> "AttemptFolder":
        """Take it away from a driver that may still run: in one step, whatever that one writes goes elsewhere.

        :raises FileNotFoundError: when nothing is left of it.
        """
        sealed = replace(self, is_sealed=True)
        if not sealed.root.exists():
            self.written_as.rename(sealed.root)
        return sealed

    def forget_query(self, name: str) -> None:
        """Remove what a query has left that did not come to run."""
        self.described(name).unlink(missing_ok=True)
        shutil.rmtree(self.location(name), ignore_errors=True)

    def forget_older(self) -> None:
        """Remove the folders of attempts before this one: nobody starts from them any more."""
        for folder in (self.work / self.pipeline).glob("[0-9]*"):
            number = folder.name.removesuffix(".sealed")
            if number.isdecimal() and int(number) < self.attempt:
                shutil.rmtree(folder, ignore_errors=True)


def check_plain(path: Path) -> None:
    """Spark writes paths into its logs as URIs, which are compared as texts: only what is written alike is safe."""
    if not path.is_absolute() or path.as_uri() != f"file://{path}":
        raise Misused(f"The folder {path} can not be used: give an absolute path of letters, digits and / . _ - only.")
