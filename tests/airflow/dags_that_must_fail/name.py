"""Must fail with: can not name a pipeline"""

from airflow_provider_ckpt import checkpoint_dags, every, keep  # noqa: F401

checkpoint_dags("or ders", application="a.py")
