"""Taking secrets out of whatever is about to be shown."""

import re

from airflow_provider_ckpt.protocol.codec import Json

_IN_AUTHORITY = re.compile(r"([A-Za-z][\w+.\-]*://[^\s:/?#@]*):\S*@")  # up to the last @: passwords may hold one
_IN_QUERY = re.compile(r"([?&](?:password|sslpassword|passfile)=)[^&\s'\"]+", re.IGNORECASE)


def redact(text: str) -> str:
    """The same text with `***` for every password in a URL."""
    return _IN_QUERY.sub(r"\1***", _IN_AUTHORITY.sub(r"\1:***@", text))


def redact_all(document: Json) -> Json:
    """The same document, every text in it redacted: what is stored may quote somebody's URL."""
    if isinstance(document, str):
        return redact(document)
    if isinstance(document, dict):
        return {name: redact_all(value) for name, value in document.items()}
    if isinstance(document, list):
        return [redact_all(value) for value in document]
    return document


def has_secret(url: str) -> bool:
    return redact(url) != url
