"""A generated cluster with planted leaks, for the tests and the bench of the audits."""
