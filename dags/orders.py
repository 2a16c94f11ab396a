"""What the Dags of the pipeline `orders` share. Plain operators, one Dag per file: read them, copy them, change them.

`payments.py` declares the same set for another pipeline in a few lines.
"""

import os
from datetime import timedelta
from pathlib import Path

import pendulum

import airflow_provider_ckpt

PIPELINE = "orders"
EXAMPLE = str(Path(airflow_provider_ckpt.__file__).parent / "spark" / "example.py")
APPLICATION = os.environ.get("ORDERS_APPLICATION", EXAMPLE)
SOURCE = os.environ.get("ORDERS_SOURCE", "/data/orders")
TARGET = os.environ.get("ORDERS_TARGET", "/data/published")
EVERY = timedelta(seconds=float(os.environ.get("ORDERS_CHECKPOINT_SECONDS", "300")))
CLEANUP_EVERY = timedelta(seconds=float(os.environ.get("ORDERS_CLEANUP_SECONDS", "3600")))
LOOK_EVERY = timedelta(seconds=float(os.environ.get("ORDERS_LOOK_SECONDS", "60")))

SETTINGS = {
    "interval": f"{EVERY.total_seconds() * 500:.0f}ms",  # half: a late run must not make the next one too early
    "attempt_ttl": os.environ.get("ORDERS_ATTEMPT_TTL", "60s"),
    "restart": "exponential(10 in 1h, 1s to 1m)",
    "keep_last": "5",
    "recovery_point": f"{EVERY.total_seconds() * 3000:.0f}ms",  # the newest checkpoint may be this old
}
TASK = {"pipeline": PIPELINE, "settings": SETTINGS}  # whichever task comes first declares the pipeline
DAG_ARGUMENTS = {
    "start_date": pendulum.datetime(2024, 1, 1, tz="UTC"),
    "catchup": False,
    "max_active_runs": 1,
    "tags": ["ckpt", PIPELINE],
}
SOON = timedelta(seconds=10)
