"""Airflow triggers. Their class paths are stored in Airflow's database and stay the same."""
