"""The Airflow plugin that adds the page "Training" to Airflow's UI."""
