"""Must fail with: needs a time above zero"""

from airflow_provider_ckpt import checkpoint_dags, every, keep  # noqa: F401

checkpoint_dags("orders", application="a.py", checkpoint=every(minutes=0))
