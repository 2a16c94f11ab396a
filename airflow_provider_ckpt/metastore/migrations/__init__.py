"""Alembic's home: `env.py` runs the scripts in `versions/`."""
