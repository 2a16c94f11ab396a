"""Notifiers: what people hear."""
