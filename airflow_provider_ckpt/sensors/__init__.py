"""Sensors: what a Dag waits for."""
