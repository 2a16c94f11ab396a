"""Must fail with: write notify="""

from airflow_provider_ckpt import checkpoint_dags, every, keep  # noqa: F401

checkpoint_dags("orders", application="a.py", notify="me@example.org")  # type: ignore[arg-type]
