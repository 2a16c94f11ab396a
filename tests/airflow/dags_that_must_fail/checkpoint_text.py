"""Must fail with: write checkpoint=every"""

from airflow_provider_ckpt import checkpoint_dags, every, keep  # noqa: F401

checkpoint_dags("orders", application="a.py", checkpoint="5m")  # type: ignore[arg-type]
