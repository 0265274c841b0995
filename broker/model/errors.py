"""What can go wrong in the broker, each with the words for its two edges.

BrokerError
├── MetadataError              the metadata store refused or failed
│   └── BadVersion             somebody else wrote first
├── PersistenceError           an add or a read of a ledger failed; trying again may help
│   ├── LedgerFenced           another broker took the ledger over
│   ├── NotEnoughBookies       too few bookies are fit for new entries
│   ├── ReadTimedOut           storage did not answer in time
│   ├── NoSuchEntry            the bookie has no such entry (it knows the ledger)
│   └── NoSuchLedger
├── ServiceNotReady            not served here, not yet open, closing
├── TopicNotFound  SubscriptionNotFound  ConsumerNotFound  InvalidTopicName
├── ProducerBusy  ProducerFenced  ConsumerBusy  ConsumerAssignError
├── TopicTerminated  NotAllowed  TooManyRequests  ChecksumMismatch  UnsupportedVersion
└── QuotaExceeded
"""

from __future__ import annotations

from typing import ClassVar


class BrokerError(Exception):
    """`code` is ServerError's number on the wire, `status` HTTP's; `retriable` says if trying again can help."""

    code: ClassVar[int] = 0
    status: ClassVar[int] = 500
    retriable: ClassVar[bool] = False


class MetadataError(BrokerError):
    code = 1


class BadVersion(MetadataError):
    status = 409
    retriable = True


class PersistenceError(BrokerError):
    code = 2
    retriable = True


class LedgerFenced(PersistenceError):
    retriable = False


class NotEnoughBookies(PersistenceError):
    status = 503


class ReadTimedOut(PersistenceError):
    status = 504


class NoSuchEntry(PersistenceError):
    status = 404
    retriable = False


class NoSuchLedger(PersistenceError):
    status = 404
    retriable = False


class ConsumerBusy(BrokerError):
    code = 5
    status = 409


class ServiceNotReady(BrokerError):
    code = 6
    status = 503
    retriable = True


class QuotaExceeded(BrokerError):
    code = 7
    status = 412


class ChecksumMismatch(BrokerError):
    code = 9
    status = 400


class UnsupportedVersion(BrokerError):
    code = 10
    status = 400


class TopicNotFound(BrokerError):
    code = 11
    status = 404


class SubscriptionNotFound(BrokerError):
    code = 12
    status = 404


class ConsumerNotFound(BrokerError):
    code = 13
    status = 404


class TooManyRequests(BrokerError):
    code = 14
    status = 429
    retriable = True


class TopicTerminated(BrokerError):
    code = 15
    status = 409


class ProducerBusy(BrokerError):
    code = 16
    status = 409


class InvalidTopicName(BrokerError):
    code = 17
    status = 412


class ConsumerAssignError(BrokerError):
    code = 19
    status = 409


class NotAllowed(BrokerError):
    code = 22
    status = 405


class ProducerFenced(BrokerError):
    code = 25
    status = 409
