"""What is checked when Airflow parses a DAG file: the names and the values of parameters."""
