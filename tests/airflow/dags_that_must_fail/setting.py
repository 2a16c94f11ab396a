"""Must fail with: There is no setting 'intervall'"""

from airflow_provider_ckpt import checkpoint_dags, every, keep  # noqa: F401

checkpoint_dags("orders", application="a.py", settings={"intervall": "5m"})
