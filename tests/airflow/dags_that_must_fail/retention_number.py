"""Must fail with: write retention=keep"""

from airflow_provider_ckpt import checkpoint_dags, every, keep  # noqa: F401

checkpoint_dags("orders", application="a.py", retention=10)  # type: ignore[arg-type]
