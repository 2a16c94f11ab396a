"""A pipeline whose Dags tell a webhook and a mailbox of everything; how often they look, the test says."""

import os
from datetime import timedelta

from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from airflow_provider_ckpt import checkpoint_dags, every
from airflow_provider_ckpt.notifications.webhook import CheckpointLateNotifier, PipelineNotifier

WEBHOOK = {"http_conn_id": "night", "pipeline": "orders"}
MAIL = SmtpNotifier(
    to="night@example.org",
    from_email="ckpt@example.org",
    subject="{{ '%s (%s)' % (alert.kind, alert.state) if alert is defined else 'a task has ended' }}",
    html_content="{{ alert | default(exception, true) }}",
)

checkpoint_dags(
    "orders",
    application=os.environ["ORDERS_APPLICATION"],
    checkpoint=every(seconds=10),
    look=every(seconds=float(os.environ["ORDERS_LOOK_SECONDS"])),
    restart="exponential(10 in 1h, 1s to 1m)",
    settings={"interval": "1s", "tolerable_failures": "1", "attempt_ttl": "5m"},
    notify=[PipelineNotifier(**WEBHOOK), MAIL],
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_LOGICAL_DATE,
        interval=timedelta(seconds=75),  # the run is held and cleared before: that takes long on a busy machine
        callback=AsyncCallback(CheckpointLateNotifier, kwargs=WEBHOOK),
    ),
    submit={
        "application_args": [os.environ["ORDERS_SOURCE"], os.environ["ORDERS_TARGET"]],
        "conf": {"spark.scheduler.mode": "FAIR", "spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"},
        "properties_file": os.environ["ORDERS_PROPERTIES"],
    },
)
