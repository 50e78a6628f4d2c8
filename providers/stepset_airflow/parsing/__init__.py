"""Checks the names and the values of an operator's parameters when Airflow parses a DAG file."""
