"""The Airflow sensor that waits for a run."""
