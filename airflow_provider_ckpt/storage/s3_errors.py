"""What S3 and the way to it answer, sorted by what it means for us, and as errors that say what to do next."""

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
)
from botocore.exceptions import ConnectionError as NoConnectionError

from airflow_provider_ckpt.protocol.errors import CkptError, Corrupt, Misused, TryAgain, Unreachable

S3_ERRORS = (ClientError, BotoCoreError)
NETWORK_ERRORS = (HTTPClientError, NoConnectionError, IncompleteReadError)

S3Error = ClientError | BotoCoreError

_SERVER_ERROR = 500
_ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})
_TAKEN = frozenset({"412", "PreconditionFailed"})
_CONFLICT = frozenset({"409", "ConditionalRequestConflict", "OperationAborted"})
_UNSUPPORTED = frozenset({"501", "NotImplemented"})
_UNSERVED = frozenset({"RequestTimeout", "SlowDown", "429", "TooManyRequests", "RequestLimitExceeded"})
_DENIED = frozenset({"403", "AccessDenied", "Forbidden", "AllAccessDisabled", "AccountProblem"})
_BAD_CREDENTIALS = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"})
_NO_BUCKET = frozenset({"NoSuchBucket", "InvalidBucketName"})
_DAMAGED = frozenset({"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "IncompleteBody"})


def is_absent(error: S3Error) -> bool:
    return _code(error) in _ABSENT


def is_taken(error: S3Error) -> bool:
    """The condition "only if there is nothing" did not hold."""
    return _code(error) in _TAKEN


def is_conflict(error: S3Error) -> bool:
    """Another request for the same key was under way: the same request again gets a proper answer."""
    return _code(error) in _CONFLICT


def is_unsupported(error: S3Error) -> bool:
    return _code(error) in _UNSUPPORTED


def is_no_upload(error: S3Error) -> bool:
    """Completed or aborted before, by whomever."""
    return _code(error) == "NoSuchUpload"


def is_unclear(error: S3Error) -> bool:
    """Nobody said whether the request was carried out; an earlier try of the client may still be."""
    # A completed upload is forgotten: the client's second try to complete it is told that there is no such upload.
    return _is_unserved(error) or is_no_upload(error)


def explained(error: S3Error, path: str, where: str) -> CkptError:
    """:param where: bucket and host, for people. Credentials are in no text, not even the id of a key."""
    if isinstance(error, FlexibleChecksumError):
        return Corrupt(f"{path} came from {where} with another checksum than it was stored with. Restore from another.")
    if _is_unserved(error):
        return Unreachable(f"{where} did not serve {path} ({kind(error)}). Check that it is up, then run this again.")
    return _explained_refusal(error, path, where)


def kind(error: S3Error) -> str:
    """Only the kind: a text of botocore may carry the whole URL of the request."""
    return _code(error) or type(error).__name__


def no_such_bucket(where: str) -> Misused:
    return Misused(f"There is no {where}. Make the bucket, or correct its name and endpoint in the storage's URL.")


def _explained_refusal(error: S3Error, path: str, where: str) -> CkptError:
    code = _code(error)
    if code in _NO_BUCKET:
        return no_such_bucket(where)
    if code in _DENIED:
        return Misused(
            f"Access to {path} in {where} is denied ({code}). Allow this identity to get, put, list and delete objects "
            "and multipart uploads there, or use another profile."
        )
    if code in _BAD_CREDENTIALS or not isinstance(error, ClientError):
        return Misused(
            f"The credentials or the settings for {where} do not work ({kind(error)}). Renew or correct them."
        )
    return _explained_rest(error, code, path, where)


def _explained_rest(error: ClientError, code: str, path: str, where: str) -> CkptError:
    if is_no_upload(error):
        return TryAgain(f"The upload of {path} to {where} was discarded by somebody else. Run this again.")
    if code in _DAMAGED:
        return TryAgain(f"{path} was damaged on its way to {where} ({code}) and not stored. Run this again.")
    if code in _UNSUPPORTED:
        return Misused(
            f"{where} has no conditional writes (If-None-Match), without which nothing is safe. Use another."
        )
    return Misused(
        f"{where} refused {path}: {code}, {error.response.get('Error', {}).get('Message', 'no reason given')}"
    )


def _is_unserved(error: S3Error) -> bool:
    if isinstance(error, ClientError):
        return not is_unsupported(error) and (_status(error) >= _SERVER_ERROR or _code(error) in _UNSERVED)
    return isinstance(error, NETWORK_ERRORS)


def _code(error: S3Error) -> str:
    return error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else ""


def _status(error: ClientError) -> int:
    metadata = error.response.get("ResponseMetadata")
    return metadata["HTTPStatusCode"] if metadata else 0
