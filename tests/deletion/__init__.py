"""Topics of every kind, created and deleted: `python -m tests.deletion`."""
