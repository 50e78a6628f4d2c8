"""Airflow triggers. Airflow's database contains their class paths, which must not change."""
