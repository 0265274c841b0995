"""Controls for tests of applications: a clock that a test advances, and faults that a script asks for.

Only `--test-faults` brings them into a broker. `magnetar/kit` is the Python side.
"""
