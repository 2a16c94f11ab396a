"""An S3 server in a process of its own: moto over HTTP.

It shares the machine's cores with whoever it serves, which a real one does not: it has the lowest priority, so that it
takes only what is left.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

BUCKET = "checkpoints"
REGION = "us-east-1"
SESSION = "BENCH_S3_SESSION"  # names the variable that tells a driver which processes are the server's
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "for-moto", "AWS_SECRET_ACCESS_KEY": "for-moto"}


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Its URL, as `CKPT_STORAGE` takes it."""
    from tests.bench.spark.launching import die_with_parent, with_group  # noqa: PLC0415 - it imports this file

    port = _free_port()
    with (folder / "s3.log").open("wb") as log:
        server = subprocess.Popen(
            ["nice", "-n", "19", sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        os.environ[SESSION] = str(server.pid)
        endpoint = f"http://127.0.0.1:{port}"
        _make_bucket(endpoint)
        yield f"s3://{BUCKET}/bench?endpoint={endpoint}&region={REGION}&addressing=path"
    finally:
        with_group(server.pid, signal.SIGKILL)
        server.wait()


def plain_client(url: str) -> Any:
    """boto3 as it comes, at the endpoint of a URL from here."""
    endpoint = url.partition("endpoint=")[2].partition("&")[0]
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )


def _make_bucket(endpoint: str) -> None:
    give_up = time.monotonic() + 60
    while True:
        try:
            plain_client(f"endpoint={endpoint}").create_bucket(Bucket=BUCKET)
        except Exception:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.2)
        else:
            return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
