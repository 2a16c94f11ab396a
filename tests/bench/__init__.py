"""Benchmarks: ratios against something real that is measured in the same run. `python -m tests.bench --help`."""
