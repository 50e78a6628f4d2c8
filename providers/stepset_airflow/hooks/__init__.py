"""Connections to clusters."""
