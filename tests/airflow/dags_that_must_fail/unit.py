"""Must fail with: takes what timedelta takes"""

from airflow_provider_ckpt import checkpoint_dags, every, keep  # noqa: F401

checkpoint_dags("orders", application="a.py", checkpoint=every(minuets=5))
