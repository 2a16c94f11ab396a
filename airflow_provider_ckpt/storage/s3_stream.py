"""A stream over an S3 object that goes on where the connection broke."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.storage.s3_client import Body
from airflow_provider_ckpt.storage.s3_errors import NETWORK_ERRORS, S3_ERRORS, S3Error

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_RESUMES = 3  # in a row, without a byte between them


class S3Stream(io.RawIOBase):
    """The client retries a request, but not an answer that breaks off: large objects need both.

    :param body: the answer to read, from the first byte on.
    :param get: asks for the rest, from a byte position on.
    :param explain: makes our error of what S3 raised.
    """

    def __init__(self, body: Body, get: Callable[[int], Body], explain: Callable[[S3Error], CkptError]) -> None:
        self._body, self._get, self._explain = body, get, explain
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        chunk = self._read(len(view))
        view[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        if not self.closed:
            self._body.close()
        super().close()

    def _read(self, count: int) -> bytes:
        try:
            chunk = self._read_or_resume(count)
        except S3_ERRORS as error:
            raise self._explain(error) from error
        self._position += len(chunk)
        return chunk

    def _read_or_resume(self, count: int) -> bytes:
        for _ in range(_RESUMES):
            try:
                return self._body.read(count)
            except NETWORK_ERRORS:
                self._body.close()
                self._body = self._get(self._position)
        return self._body.read(count)
