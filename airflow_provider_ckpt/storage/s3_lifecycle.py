"""How long a bucket lets an upload in parts wait for its end, by its own lifecycle rules."""

import logging
from collections.abc import Iterable

from airflow_provider_ckpt.storage.s3_client import LifecycleRule, S3Client
from airflow_provider_ckpt.storage.s3_errors import S3_ERRORS, kind

_log = logging.getLogger(__name__)


def days_of_uploads(client: S3Client, bucket: str, root: str) -> int | None:
    """The fewest days after which one below `root` is aborted; None: nobody aborts it, or nobody says."""
    try:
        rules = client.get_bucket_lifecycle_configuration(Bucket=bucket).get("Rules", [])
    except S3_ERRORS as error:  # there is none, or we are not allowed to see it
        _log.debug("The lifecycle rules of bucket %s are not known: %s", bucket, kind(error))
        return None
    return min(_days(rules, root), default=None)


def _days(rules: Iterable[LifecycleRule], root: str) -> Iterable[int]:
    for rule in rules:
        days = rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
        if days is not None and rule["Status"] == "Enabled" and _concerns(_prefix(rule), root):
            yield days


def _concerns(prefix: str, root: str) -> bool:
    """Whether a rule is about our folder, one above it, or a part of it."""
    return root.startswith(prefix) or prefix.startswith(root)


def _prefix(rule: LifecycleRule) -> str:
    """In the three places where S3 has put it over the years."""
    chosen = rule.get("Filter", {})
    return rule.get("Prefix") or chosen.get("Prefix") or chosen.get("And", {}).get("Prefix") or ""
