"""The page in Airflow's UI and the API behind it.

`app` makes the FastAPI app, `security` says who may do what, `answers` is what the API says, one file per subject has
the routes, and `static/` is the page: plain ES modules, no build step.
"""
