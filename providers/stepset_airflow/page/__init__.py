"""The page "Training" of Airflow's UI: the document that a run's follower writes, and the application that shows it.

See "The page" in docs/design/airflow.md.
"""
