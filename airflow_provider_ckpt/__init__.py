"""Orchestrated checkpoints for PySpark pipelines on Apache Airflow."""

__version__ = "0.1.0"
