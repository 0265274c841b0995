"""The tests, and what can be run by hand: python -m tests.vectors, python -m tests.fuzz."""
