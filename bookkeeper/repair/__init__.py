"""Re-replication of what lost bookies held, as BookKeeper's AutoRecovery does it.

The auditor, elected among all processes, marks ledgers that lack copies. Workers take marked ledgers, copy what is missing
to other bookies, and store the new ensembles. `docs/explanation/rereplication.md` explains the rules.
"""
