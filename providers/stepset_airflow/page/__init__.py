"""The page "Training" of Airflow's UI: what is written of a run while it is followed, and what shows it.

docs/design/airflow.md, "The page", describes the sources of its data.
"""
