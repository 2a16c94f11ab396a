"""Operators: what a Dag does with checkpoints."""
