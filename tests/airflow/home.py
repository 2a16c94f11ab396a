"""An AIRFLOW_HOME for this test process: import it before anything of Airflow, which writes there."""

import os
import tempfile

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="ckpt-airflow-")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
