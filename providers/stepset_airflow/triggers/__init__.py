"""The Airflow triggers. Their class paths must not change, because Airflow's database contains them."""
