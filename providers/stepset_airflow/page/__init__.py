"""The page "Training" of Airflow's UI.

The process that follows a run stores a JSON document with the data of the run. A FastAPI application displays the
document. See "The page" in docs/design/airflow.md.
"""
