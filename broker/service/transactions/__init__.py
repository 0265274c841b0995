"""Transactions: coordinators, what they leave in topics, and acknowledgements that wait for their end.

Coordinators            all coordinators of the broker; clients' requests
  Coordinator           one coordinator: open transactions, their states, time-outs
    CoordinatorLog      its records in a managed ledger
TopicTransactions       one topic: which entries readers see
  TransactionBuffer     open and aborted transactions of the topic (pure)
SubscriptionTransactions  one subscription: acknowledgements of open transactions
  PendingAcks           those acknowledgements and their conflicts (pure)

`broker/service/subscriptions/transactional_acks.py` does the same towards cursor and dispatcher: made, ended, restored.
"""
