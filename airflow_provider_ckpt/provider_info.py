"""What Airflow is told about this package."""

from typing import Any

_NAME = "Checkpoints"
_HERE = "airflow_provider_ckpt"

CONN_FIELDS: dict[str, Any] = {
    "storage": {
        "label": "Storage",
        "description": "Where the bytes are: s3://bucket/prefix or an absolute path.",
        "schema": {"type": ["string", "null"]},
    },
    "work": {
        "label": "Work folder",
        "description": "Where running pipelines have their checkpointLocations: an absolute path.",
        "schema": {"type": ["string", "null"]},
    },
    "aws_conn_id": {
        "label": "AWS connection",
        "description": "An Airflow connection with the keys to the storage.",
        "schema": {"type": ["string", "null"]},
    },
}
UI_FIELD_BEHAVIOUR: dict[str, Any] = {
    "hidden-fields": ["host", "schema", "login", "port", "extra"],
    "relabeling": {"password": "Metastore URL"},
    "placeholders": {"password": "postgresql+psycopg://user:password@host/database"},
}


def get_provider_info() -> dict[str, Any]:
    return {
        "package-name": "airflow-provider-ckpt",
        "name": _NAME,
        "description": "Globally consistent checkpoints, savepoints and exactly-once recovery of PySpark pipelines.",
        "integrations": [{"integration-name": _NAME, "external-doc-url": "", "tags": ["software"]}],
        "hooks": [_modules("hooks", "ckpt")],
        "operators": [
            _modules(
                "operators", "trigger", "complete", "savepoint", "cleanup", "verify", "restore", "spark_submit", "sla"
            )
        ],
        "sensors": [_modules("sensors", "acks", "pipeline")],
        "triggers": [_modules("triggers", "checkpoint", "attempt", "events", "pipeline")],
        "connection-types": [
            {
                "connection-type": "ckpt",
                "hook-class-name": f"{_HERE}.hooks.ckpt.CkptHook",
                "hook-name": _NAME,
                "conn-fields": CONN_FIELDS,
                "ui-field-behaviour": UI_FIELD_BEHAVIOUR,
            }
        ],
        "extra-links": [f"{_HERE}.links.run.RunLink", f"{_HERE}.links.page.PageLink"],
        "notifications": [
            f"{_HERE}.notifications.webhook.PipelineNotifier",
            f"{_HERE}.notifications.webhook.CheckpointCompletedNotifier",
            f"{_HERE}.notifications.webhook.CheckpointFailedNotifier",
            f"{_HERE}.notifications.webhook.PipelineRestoredNotifier",
            f"{_HERE}.notifications.webhook.PipelineAlertNotifier",
            f"{_HERE}.notifications.webhook.CheckpointLateNotifier",
        ],
        "cli": [f"{_HERE}.airflow_cli.get_commands"],
        "config": {
            "ckpt": {
                "description": "Checkpoints of Spark pipelines.",
                "options": {
                    "poll_interval": {
                        "description": "Seconds between two looks that the triggerer takes at a metastore.",
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": "0.5",
                        "default": "1.0",
                    },
                },
            }
        },
    }


def _modules(kind: str, *names: str) -> dict[str, Any]:
    return {"integration-name": _NAME, "python-modules": [f"{_HERE}.{kind}.{name}" for name in names]}
