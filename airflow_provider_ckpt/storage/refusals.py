"""What every storage says in the same words, so that a text does not depend on where the bytes lie."""

from pathlib import Path

from airflow_provider_ckpt.protocol.errors import AlreadyExists, NotFound, TryAgain


def no_such_file(path: str, url: str) -> NotFound:
    return NotFound(f"There is no file {path} in {url}: it was never written, or it was deleted since.")


def no_such_source(source: Path) -> NotFound:
    return NotFound(f"There is no local file {source} to store: it was deleted since. Capture again and store that.")


def other_content(path: str, url: str) -> AlreadyExists:
    return AlreadyExists(
        f"{path} exists in {url} with other content, and a stored file is never overwritten. "
        "Write under a new name, and find out who wrote this one."
    )


def target_taken(target: Path) -> AlreadyExists:
    return AlreadyExists(f"{target} exists, and a file is only laid out anew. Choose an empty folder.")


def never_settled(path: str, url: str) -> TryAgain:
    return TryAgain(f"{path} was not written to {url}: others kept changing the same place. Run this again.")
