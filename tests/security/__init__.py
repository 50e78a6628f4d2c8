"""Attacks on stepset; each test performs one."""
