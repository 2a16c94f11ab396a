"""`python -m airflow_provider_ckpt.cli` is `ckpt`."""

import sys

from airflow_provider_ckpt.cli import main

sys.exit(main())
