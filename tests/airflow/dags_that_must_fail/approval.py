"""Must fail with: approve_restore is one of never, on_loss, always"""

from airflow_provider_ckpt import checkpoint_dags, every, keep  # noqa: F401

checkpoint_dags("orders", application="a.py", approve_restore="perhaps")
