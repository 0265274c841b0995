"""kill -9 at random points while official clients produce and ack: `python -m tests.crash --help`."""
