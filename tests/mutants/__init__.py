"""Planted bugs: `make test-mutants` plants one after the other, and a test of the gate must find each.

A test that can not fail is a defect: this is how the tests that guard the most are tried. `bugs.py` lists the bugs,
`running.py` plants one and runs the tests that must find it.
"""
