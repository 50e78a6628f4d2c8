"""The Airflow operator that runs a distributed training."""
