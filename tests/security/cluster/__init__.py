"""Attacks on a real cluster."""
