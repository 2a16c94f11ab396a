"""The requests to HDFS, over WebHDFS by way of fsspec, with every answer looked at.

fsspec's own `mv` and `rm` drop the answer that says whether anything was done, its writes take four requests where two
will do, it sets no time-out, and it hands the text of a data node's refusal out as the content of a file. So what
changes something goes through `_call`, and the session is one that gives up in time and raises what is refused.
"""

import getpass
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

import requests
from fsspec.implementations.webhdfs import WebHDFS
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from airflow_provider_ckpt.protocol.errors import Misused, Unreachable
from airflow_provider_ckpt.storage.base import CHUNK_BYTES
from airflow_provider_ckpt.storage.hdfs_errors import HDFS_ERRORS, Refusal, doubtful, explained, is_unclear, refusal_of
from airflow_provider_ckpt.storage.hdfs_place import HdfsPlace

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CONNECT_SECONDS, _READ_SECONDS, _RETRIES, _CONNECTIONS = 5, 60, 2, 50
_REFUSED = 400
_BYTES = {"Content-Type": "application/octet-stream"}


class _File(Protocol):
    details: Mapping[str, object]
    size: int

    def read(self, length: int) -> bytes: ...

    def tell(self) -> int: ...

    def close(self) -> None: ...


class WebHdfs(Protocol):
    """What we ask of fsspec's."""

    session: requests.Session

    def info(self, path: str) -> Mapping[str, object]: ...

    def ls(self, path: str, detail: bool) -> list[Mapping[str, object]]: ...  # noqa: FBT001 - as fsspec has it

    def mkdir(self, path: str) -> None: ...

    def open(self, path: str, mode: str) -> _File: ...

    def _call(self, op: str, method: str, *, path: str, redirect: bool = True, **options: str) -> requests.Response: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file or a folder, by its own name."""

    name: str
    size: int
    is_folder: bool


def connect(place: HdfsPlace) -> "HdfsClient":
    """Nothing is asked yet. Without a user in the URL it is who Hadoop's own client would be as well.

    :raises Misused: when nobody knows who that is.
    """
    user = place.user or _user_of_this_process()
    fs = cast("WebHdfs", WebHDFS(host=place.host, port=place.port, user=user, skip_instance_cache=True))
    fs.session = _Session()
    return HdfsClient(fs, f"HDFS at {place.host}:{place.port}")


class HdfsClient:
    """Each call is one step of the name node; paths are absolute.

    Raises, everywhere: Unreachable when nobody answered in time and nothing was changed, Misused when it may not be.

    :param where: which HDFS, for people.
    """

    def __init__(self, fs: WebHdfs, where: str) -> None:
        self._fs, self._where = fs, where

    def entry(self, path: str) -> Entry | None:
        with self._clear_errors(path):
            try:
                return _entry(path.rpartition("/")[2], self._fs.info(path))
            except Refusal as refusal:
                if refusal.is_absent:
                    return None
                raise

    def entries(self, folder: str) -> list[Entry]:
        """What lies in a folder; nothing where there is none."""
        with self._clear_errors(folder):
            try:
                found = self._fs.ls(folder or "/", detail=True)
            except Refusal as refusal:
                if refusal.is_absent:
                    return []
                raise
        named = [(str(info["pathSuffix"]), info) for info in found]
        return [_entry(name, info) for name, info in named if name]  # a file lists itself, without a name

    def open(self, path: str) -> BinaryIO | None:
        """A stream over a file; None where there is none."""
        with self._clear_errors(path):
            try:
                file = self._fs.open(path, "rb")
            except Refusal as refusal:
                if refusal.is_absent:
                    return None
                raise
        if _entry(path, file.details).is_folder:
            return None
        return cast("BinaryIO", io.BufferedReader(_Stream(self, path, file), CHUNK_BYTES))

    def send(self, path: str, content: Iterable[bytes], *, to_be: str) -> None:
        """Write a new file, with the folders on the way to it. One that breaks off is left as it is.

        :param to_be: the name that it gets once it is complete, for people.
        """
        with self._clear_errors(to_be):
            asked = self._call("CREATE", "PUT", path, redirect=False, overwrite="false")
            self._fs.session.put(asked.headers["Location"], data=iter(content), headers=_BYTES)

    def rename(self, source: str, target: str) -> bool:
        """Over nothing; False when there is something at the target, or nothing at the source.

        :raises OutcomeUnknown: when nobody said whether it was done.
        """
        try:
            # With this option the name node refuses what without it would move the file *into* a folder at the target.
            answer = self._call("RENAME", "PUT", source, destination=target, renameoptions="NONE")
        except HDFS_ERRORS as error:
            if isinstance(error, Refusal) and (error.is_absent or error.is_taken):
                return False
            if is_unclear(error):
                raise doubtful(error, target, self._where) from error
            raise explained(error, target, self._where) from error
        return not answer.content or bool(answer.json()["boolean"])

    def delete(self, path: str, *, is_recursive: bool = False) -> bool:
        """False when it was not there. A folder that is not empty is refused, unless it may go with all that is in it.

        :raises OutcomeUnknown: when nobody said whether it was done.
        """
        try:
            answer = self._call("DELETE", "DELETE", path, recursive="true" if is_recursive else "false")
        except HDFS_ERRORS as error:
            if is_unclear(error):
                raise doubtful(error, path, self._where) from error
            raise explained(error, path, self._where) from error
        return bool(answer.json()["boolean"])

    def make_folder(self, path: str) -> None:
        """With all on the way to it; one that is there is fine."""
        with self._clear_errors(path):
            self._fs.mkdir(path)

    def read(self, path: str, file: _File, length: int) -> bytes:
        with self._clear_errors(path):
            chunk = file.read(length)
        if not chunk and file.tell() < file.size:
            raise Unreachable(f"{self._where} broke off in the middle of {path}. Run this again.")
        return chunk

    def _call(self, op: str, method: str, path: str, *, redirect: bool = True, **options: str) -> requests.Response:
        return self._fs._call(op, method, path=path, redirect=redirect, **options)  # noqa: SLF001 - see above

    @contextmanager
    def _clear_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except HDFS_ERRORS as error:
            raise explained(error, path, self._where) from error


class _Session(requests.Session):
    """Gives up in time, and takes no refusal for an answer. Only what changes nothing is asked twice."""

    def __init__(self) -> None:
        super().__init__()
        retries = Retry(_RETRIES, backoff_factor=0.2, allowed_methods=["GET"])
        self.mount("http://", HTTPAdapter(max_retries=retries, pool_maxsize=_CONNECTIONS))

    def send(self, request: requests.PreparedRequest, **options: object) -> requests.Response:
        options["timeout"] = (_CONNECT_SECONDS, _READ_SECONDS)
        response = super().send(request, **options)
        if response.status_code >= _REFUSED:
            raise refusal_of(response)
        return response


class _Stream(io.RawIOBase):
    """Reads what fsspec has opened, a piece at a time, with our errors."""

    def __init__(self, client: HdfsClient, path: str, file: _File) -> None:
        self._client, self._path, self._file = client, path, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        chunk = self._client.read(self._path, self._file, len(view))
        view[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        self._file.close()
        super().close()


def _user_of_this_process() -> str:
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError) as error:  # in containers a process may run as a number
        raise Misused(
            "This process has no user name for HDFS: name one with ?user=…, or set HADOOP_USER_NAME."
        ) from error


def _entry(name: str, info: Mapping[str, object]) -> Entry:
    return Entry(name=name, size=int(str(info["size"])), is_folder=info["type"] == "directory")
