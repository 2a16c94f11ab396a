"""Triggers: what waits in the triggerer, for any number of tasks at once."""
