"""Connects Airflow tasks to Kubernetes clusters."""
