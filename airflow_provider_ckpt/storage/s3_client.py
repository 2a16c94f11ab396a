"""What we use of a boto3 S3 client, and how one is made.

boto3 generates its methods at run time and ships no types: these are the calls and fields that we rely on.
"""
# ruff: noqa: N803  (the names are Amazon's)

from collections.abc import Iterable, Sequence
from typing import Literal, NotRequired, Protocol, TypedDict, cast, overload

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from airflow_provider_ckpt.protocol.errors import Misused, Unreachable
from airflow_provider_ckpt.storage.credentials import Credentials
from airflow_provider_ckpt.storage.s3_errors import NETWORK_ERRORS, kind

_CONNECT_SECONDS, _READ_SECONDS, _ATTEMPTS, _CONNECTIONS = 5, 60, 5, 50


class Body(Protocol):
    def read(self, amt: int | None = ...) -> bytes: ...
    def close(self) -> None: ...


class GotObject(TypedDict):
    Body: Body


class ObjectHead(TypedDict):
    ContentLength: int
    Metadata: NotRequired[dict[str, str]]


class ListedObject(TypedDict):
    Key: str
    Size: int


class ObjectsPage(TypedDict):
    Contents: NotRequired[list[ListedObject]]


class ListedUpload(TypedDict):
    Key: str
    UploadId: str


class UploadsPage(TypedDict):
    Uploads: NotRequired[list[ListedUpload]]


class StartedUpload(TypedDict):
    UploadId: str


class UploadedPart(TypedDict):
    ETag: str


class CopiedPart(TypedDict):
    CopyPartResult: UploadedPart


class CompletedPart(TypedDict):
    PartNumber: int
    ETag: str
    ChecksumSHA256: NotRequired[str]


class CompletedParts(TypedDict):
    Parts: Sequence[CompletedPart]


class CopySource(TypedDict):
    Bucket: str
    Key: str


class RulePrefix(TypedDict):
    Prefix: NotRequired[str]


class RuleFilter(RulePrefix):
    And: NotRequired[RulePrefix]


class AbortRule(TypedDict):
    DaysAfterInitiation: NotRequired[int]


class LifecycleRule(TypedDict):
    Status: str
    Prefix: NotRequired[str]
    Filter: NotRequired[RuleFilter]
    AbortIncompleteMultipartUpload: NotRequired[AbortRule]


class Lifecycle(TypedDict):
    Rules: NotRequired[list[LifecycleRule]]


class ObjectsPaginator(Protocol):
    def paginate(self, *, Bucket: str, Prefix: str) -> Iterable[ObjectsPage]: ...


class UploadsPaginator(Protocol):
    def paginate(self, *, Bucket: str, Prefix: str) -> Iterable[UploadsPage]: ...


class ClientMeta(Protocol):
    @property
    def endpoint_url(self) -> str: ...


class S3Client(Protocol):
    @property
    def meta(self) -> ClientMeta: ...

    def head_bucket(self, *, Bucket: str) -> object: ...

    def get_bucket_lifecycle_configuration(self, *, Bucket: str) -> Lifecycle: ...

    def head_object(self, *, Bucket: str, Key: str) -> ObjectHead: ...

    def get_object(self, *, Bucket: str, Key: str, Range: str = ...) -> GotObject: ...

    def put_object(
        self,
        *,
        Bucket: str,
        Key: str,
        Body: bytes,
        IfNoneMatch: str,
        ChecksumAlgorithm: str,
        ChecksumSHA256: str,
        Metadata: dict[str, str],
    ) -> object: ...

    def copy_object(self, *, Bucket: str, Key: str, CopySource: CopySource, IfNoneMatch: str) -> object: ...

    def delete_object(self, *, Bucket: str, Key: str) -> object: ...

    def create_multipart_upload(
        self, *, Bucket: str, Key: str, ChecksumAlgorithm: str = ..., Metadata: dict[str, str] = ...
    ) -> StartedUpload: ...

    def upload_part(
        self,
        *,
        Bucket: str,
        Key: str,
        UploadId: str,
        PartNumber: int,
        Body: bytes,
        ChecksumAlgorithm: str,
        ChecksumSHA256: str,
    ) -> UploadedPart: ...

    def upload_part_copy(
        self, *, Bucket: str, Key: str, UploadId: str, PartNumber: int, CopySource: CopySource, CopySourceRange: str
    ) -> CopiedPart: ...

    def complete_multipart_upload(
        self, *, Bucket: str, Key: str, UploadId: str, MultipartUpload: CompletedParts, IfNoneMatch: str
    ) -> object: ...

    def abort_multipart_upload(self, *, Bucket: str, Key: str, UploadId: str) -> object: ...

    @overload
    def get_paginator(self, operation_name: Literal["list_objects_v2"]) -> ObjectsPaginator: ...

    @overload
    def get_paginator(self, operation_name: Literal["list_multipart_uploads"]) -> UploadsPaginator: ...


def connect(
    *,
    endpoint: str | None,
    region: str | None,
    addressing: Literal["auto", "path", "virtual"],
    profile: str | None,
    credentials: Credentials | None = None,
) -> S3Client:
    """A client with the credentials given, else from where boto3 looks: environment, profile, container, instance.

    :raises Misused: when there is no such profile, or boto3 refuses the endpoint or the region.
    :raises Unreachable: when whoever hands out the credentials does not answer; boto3 asks at once.
    """
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        max_pool_connections=_CONNECTIONS,
        s3={"addressing_style": addressing},
    )
    try:
        session = _session(profile, region, credentials)
        return cast("S3Client", session.client("s3", endpoint_url=endpoint, config=config))
    except NETWORK_ERRORS as error:
        raise Unreachable(
            f"The service that hands out the credentials for S3 did not answer ({kind(error)}). "
            "Name a profile, set them in the environment, or check the way to it and run this again."
        ) from error
    except (BotoCoreError, ValueError) as error:
        raise Misused(f"There is no S3 client to be had: {error} Correct the storage's URL.") from error


def _session(profile: str | None, region: str | None, credentials: Credentials | None) -> boto3.Session:
    if credentials is None:
        return boto3.Session(profile_name=profile, region_name=region)
    return boto3.Session(
        aws_access_key_id=credentials.key,
        aws_secret_access_key=credentials.secret,
        aws_session_token=credentials.token,
        region_name=region or credentials.region,
    )
