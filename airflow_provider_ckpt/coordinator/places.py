"""Where things are when nobody says so: the metastore, the storage and the work folder embedded in one home."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from airflow_provider_ckpt.protocol.errors import Misused


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What was given; what was not is embedded in `home`."""

    home: Path
    metastore: str | None
    storage: str | None
    work_folder: str | None

    @property
    def metastore_url(self) -> str:
        return self.metastore or f"sqlite:///{self.home / 'metastore.db'}"

    @property
    def storage_url(self) -> str:
        """:raises Misused: for a metastore elsewhere whose storage nobody named: another would look all corrupt."""
        if self.storage is not None:
            return self.storage
        if self.metastore is not None:
            raise Misused(
                "The metastore is given and its storage is not: set CKPT_STORAGE (or --storage) to the storage that "
                "belongs to it. With another one every checkpoint would look corrupt."
            )
        return str(self.home / "storage")

    @property
    def work(self) -> Path:
        """Where running pipelines have the checkpointLocations of their attempts."""
        return self.home / "work" if self.work_folder is None else Path(self.work_folder).expanduser().absolute()


def places(
    metastore: str | None, storage: str | None, work: str | None = None, environ: Mapping[str, str] = os.environ
) -> Places:
    """What is given wins over the environment: CKPT_METASTORE, CKPT_STORAGE, CKPT_WORK and CKPT_HOME."""
    storage = storage or environ.get("CKPT_STORAGE") or None
    return Places(
        home=Path(environ.get("CKPT_HOME") or "~/.ckpt").expanduser().absolute(),
        metastore=_metastore(metastore or environ.get("CKPT_METASTORE") or None),
        storage=None if storage is None else _absolute(storage),
        work_folder=_work(work or environ.get("CKPT_WORK") or None),
    )


def _metastore(url: str | None) -> str | None:
    if url is not None and (any(c.isspace() for c in url) or url.partition("://")[2].partition("?")[0].count("@") > 1):
        raise Misused("The metastore's URL can not be read: write '@', ':', '/' and spaces in its password as %40 …")
    return url


def _work(given: str | None) -> str | None:
    """A path, or a `file:` URI of one.

    :raises Misused: for any other URI: a path made of it would lead to another folder.
    """
    if given is None or ":" not in given:
        return given
    found = urlsplit(given)
    if found.scheme != "file" or found.netloc not in ("", "localhost"):
        raise Misused(
            f"The work folder {given} can not be used: running pipelines keep their checkpointLocations on a POSIX "
            "file system that driver and executors share. Give an absolute path, or file:///path (CKPT_WORK, "
            "spark.ckpt.work, or `work` of the connection)."
        )
    return unquote(found.path)


def _absolute(storage: str) -> str:
    """People give relative paths and `~`; a URL stays as it is."""
    return storage if ":" in storage else str(Path(storage).expanduser().absolute())
