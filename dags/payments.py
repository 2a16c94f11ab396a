"""All five Dags of a pipeline from one declaration."""

import os
from pathlib import Path

import airflow_provider_ckpt
from airflow_provider_ckpt import checkpoint_dags, every, keep

EXAMPLE = str(Path(airflow_provider_ckpt.__file__).parent / "spark" / "example.py")

checkpoint_dags(
    "payments",
    application=os.environ.get("PAYMENTS_APPLICATION", EXAMPLE),
    checkpoint=every(seconds=float(os.environ.get("PAYMENTS_CHECKPOINT_SECONDS", "300"))),
    cleanup=every(hours=1),
    look=every(seconds=float(os.environ.get("PAYMENTS_LOOK_SECONDS", "60"))),
    retention=keep(last=10, daily=7),
    recovery_point="15m",
    restart="exponential(10 in 1h, 1s to 1m)",
    settings={"attempt_ttl": os.environ.get("PAYMENTS_ATTEMPT_TTL", "60s")},
    submit={
        "application_args": [
            os.environ.get("PAYMENTS_SOURCE", "/data/payments"),
            os.environ.get("PAYMENTS_TARGET", "/data/paid"),
        ],
        "conf": {"spark.scheduler.mode": "FAIR", "spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"},
    },
    tags=["example"],
)
