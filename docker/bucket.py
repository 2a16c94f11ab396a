"""Makes the bucket that the connection's storage names, unless it is there: an S3 server starts empty."""

import json
import os
from urllib.parse import parse_qs, urlsplit

import boto3


def main() -> None:
    storage = urlsplit(json.loads(os.environ["AIRFLOW_CONN_CKPT_DEFAULT"])["extra"]["storage"])
    keys = json.loads(os.environ["AIRFLOW_CONN_CKPT_S3"])
    settings = {name: values[0] for name, values in parse_qs(storage.query).items()}
    s3 = boto3.client(
        "s3",
        endpoint_url=settings["endpoint"],
        region_name=settings["region"],
        aws_access_key_id=keys["login"],
        aws_secret_access_key=keys["password"],
    )
    bucket = storage.netloc
    if bucket not in {each["Name"] for each in s3.list_buckets()["Buckets"]}:
        s3.create_bucket(Bucket=bucket)


if __name__ == "__main__":
    main()
