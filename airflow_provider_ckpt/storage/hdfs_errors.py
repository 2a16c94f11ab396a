"""What HDFS and the way to it answer, sorted by what it means for us, and as errors that say what to do next."""

import requests

from airflow_provider_ckpt.protocol.errors import CkptError, Misused, NotFound, OutcomeUnknown, TryAgain, Unreachable

_UNAUTHORIZED, _SERVER_ERROR = 401, 500
_ABSENT = frozenset({"FileNotFoundException"})
_TAKEN = frozenset({"FileAlreadyExistsException"})
_WAITING = frozenset({"SafeModeException", "RetriableException", "StandbyException"})
_FULL = frozenset({"QuotaExceededException", "NSQuotaExceededException", "DSQuotaExceededException"})
_DENIED = frozenset(
    {"AccessControlException", "SecurityException", "AuthenticationException", "AuthorizationException"}
)
_MISNAMED = frozenset(
    {
        "InvalidPathException",
        "IllegalArgumentException",
        "ParentNotDirectoryException",
        "PathComponentTooLongException",
        "PathIsNotEmptyDirectoryException",
    }
)


class Refusal(Exception):
    """An answer that is none: what the name node, or a data node, has against it."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(f"{status} {kind}: {message}")
        self.status, self.kind, self.message = status, kind, message

    @property
    def is_absent(self) -> bool:
        return self.kind in _ABSENT

    @property
    def is_taken(self) -> bool:
        return self.kind in _TAKEN


HdfsError = Refusal | requests.RequestException
HDFS_ERRORS = (Refusal, requests.RequestException)


def refusal_of(response: requests.Response) -> Refusal:
    """Hadoop says it in JSON, with a Java stack behind the first line; whoever stands in between, in HTML."""
    try:
        document = response.json()["RemoteException"]
        return Refusal(response.status_code, str(document["exception"]), str(document["message"]).partition("\n")[0])
    except (ValueError, KeyError, TypeError):
        return Refusal(response.status_code, f"HTTP {response.status_code}", response.reason)


def is_unclear(error: HdfsError) -> bool:
    """Nobody said whether the request was carried out."""
    return not isinstance(error, Refusal) or error.status >= _SERVER_ERROR


def doubtful(error: HdfsError, path: str, where: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{where} did not say whether {path} was changed ({_kind(error)}). Read it again before you rely on either."
    )


def explained(error: HdfsError, path: str, where: str) -> CkptError:
    """:param where: which HDFS, for people."""
    if not isinstance(error, Refusal):
        return Unreachable(
            f"{where} did not serve {path} ({_kind(error)}). Check that its name node and data nodes are up and can be "
            "reached from here, then run this again."
        )
    if error.is_absent:
        return NotFound(f"There is no file {path} at {where}: it was deleted meanwhile.")
    return _explained_refusal(error, path, where)


def _explained_refusal(error: Refusal, path: str, where: str) -> CkptError:
    if error.kind in _WAITING:
        return Unreachable(
            f"{where} does not serve {path} now ({error.kind}: {error.message}). Wait until its safe mode is over, or "
            "name the active one of its name nodes with ?webhdfs=…, then run this again."
        )
    if error.kind in _FULL:
        return TryAgain(
            f"{where} has no room for {path}: {error.message}. Free some or raise the quota, then try again."
        )
    if error.kind in _DENIED or error.status == _UNAUTHORIZED:
        return Misused(
            f"{where} denies access to {path}: {error.message}. Name a user who may read and write there with "
            "?user=…; a cluster that wants Kerberos can not be used yet."
        )
    if error.kind in _MISNAMED:
        return Misused(f"{path} can not be a file at {where}: {error.message}. Choose another name.")
    return Unreachable(f"{where} did not serve {path} ({error.kind}: {error.message}). See to it, then run this again.")


def _kind(error: HdfsError) -> str:
    """A text of requests carries the whole URL of the request."""
    return error.kind if isinstance(error, Refusal) else type(error).__name__
