"""Must fail with: write application="""

from airflow_provider_ckpt import checkpoint_dags, every, keep  # noqa: F401

checkpoint_dags("orders", application=None)  # type: ignore[arg-type]
