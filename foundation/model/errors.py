"""The broker's errors, each with its wire number and HTTP status.

BrokerError
├── MetadataError              the metadata store refused or failed
│   ├── BadVersion             another writer changed the value first
│   └── OwnerUncertain         which broker owns a bundle is not certain now
├── PersistenceError           an add or a read of a ledger failed; trying again may help
│   ├── LedgerFenced           another broker took the ledger over
│   ├── NotEnoughBookies       too few bookies are fit for new entries
│   ├── ReadTimedOut           storage did not answer in time
│   ├── EntryDamaged           no bookie has the bytes that were written
│   ├── NoSuchEntry            the bookie has no such entry (it knows the ledger)
│   └── NoSuchLedger
├── Unauthorized               the role lacks the right
├── ServiceNotReady            not served here, not yet open, closing
├── TopicNotFound  SubscriptionNotFound  InvalidTopicName
├── ProducerBusy  ProducerFenced  ConsumerBusy  ConsumerAssignError
├── IncompatibleSchema         the schema does not fit the topic
│   └── InvalidSchemaData      its definition cannot be read
├── TopicTerminated  NotAllowed  TooManyRequests  ChecksumMismatch
├── CoordinatorNotFound  InvalidTxnStatus  TransactionConflict  TransactionNotFound
├── QuotaExceeded
└── QuotaRefused

The numbers are Pulsar's `ServerError`, because clients act on them: some are retried, others end the client.
"""

from __future__ import annotations

from typing import ClassVar, Final


class BrokerError(Exception):
    """An error that a client or an administrator is told of."""

    code: ClassVar[int] = 0
    """`ServerError` on the wire."""
    status: ClassVar[int] = 500
    """HTTP status of the admin API."""


class MetadataError(BrokerError):
    """The metadata store refused an operation or could not be reached."""

    code = 1


class MetadataUnanswered(MetadataError):
    """The metadata store did not answer; a write was perhaps carried out."""

    status = 504


class BadVersion(MetadataError):
    """A compare-and-set failed: another writer changed the value first."""

    status = 409


class OwnerUncertain(MetadataError):
    """Which broker owns a bundle is not certain now; clients look it up again.

    Not ServiceNotReady: Apache's Java and Go clients close the connection when a lookup is answered with that, and all
    producers and consumers of other topics on it.
    """

    status = 503


class PersistenceError(BrokerError):
    """An add or a read of a ledger failed."""

    code = 2


class LedgerFenced(PersistenceError):
    """Another broker has taken the ledger over; this one must stop writing."""


class NotEnoughBookies(PersistenceError):
    """Too few bookies are fit for new entries."""

    status = 503


class ReadTimedOut(PersistenceError):
    """Storage did not answer a read in time."""

    status = 504


class EntryDamaged(PersistenceError):
    """Every bookie that may have the entry has other bytes than were written, or cannot read them."""


class NoSuchEntry(PersistenceError):
    """The bookie knows the ledger and has no such entry."""

    status = 404


class NoSuchLedger(PersistenceError):
    """No bookie, or no managed ledger, knows the ledger."""

    status = 404


LOST_ENTRY: Final = (EntryDamaged, NoSuchEntry, NoSuchLedger)
"""Errors of a read that prove the loss of an entry; silence, time-outs and refusals prove nothing."""


class Unauthorized(BrokerError):
    """The role of the connection or request lacks the right."""

    code = 4
    status = 401


class ConsumerBusy(BrokerError):
    """Another consumer excludes this one from the subscription."""

    code = 5
    status = 409


class ServiceNotReady(BrokerError):
    """The topic is not served here, not open yet, or closing."""

    code = 6
    status = 503


class QuotaExceeded(BrokerError):
    """The topic's backlog is at its quota; the client waits and tries again."""

    code = 7
    status = 412


class QuotaRefused(BrokerError):
    """The topic's backlog is at its quota; the client tells the application."""

    code = 8
    status = 412


class ChecksumMismatch(BrokerError):
    """The CRC32C of a message does not fit its bytes."""

    code = 9
    status = 400


class TopicNotFound(BrokerError):
    """The topic does not exist and may not be created."""

    code = 11
    status = 404


class SubscriptionNotFound(BrokerError):
    """The topic has no subscription of that name."""

    code = 12
    status = 404


class TooManyRequests(BrokerError):
    """A queue of waiting requests is full; a later attempt may succeed."""

    code = 14
    status = 429


class TopicTerminated(BrokerError):
    """The topic takes no messages any more, for ever."""

    code = 15
    status = 409


class ProducerBusy(BrokerError):
    """The producer's name is in use, or its access mode excludes it."""

    code = 16
    status = 409


class InvalidTopicName(BrokerError):
    """The text is no topic name; the message says why."""

    code = 17
    status = 412


class IncompatibleSchema(BrokerError):
    """The schema does not fit those that the topic has, or the topic's policy forbids it."""

    code = 18
    status = 409


class InvalidSchemaData(IncompatibleSchema):
    """The definition of a schema cannot be read; clients get the code of IncompatibleSchema, as recorded."""

    status = 422


class ConsumerAssignError(BrokerError):
    """The consumer's hash ranges do not fit the subscription."""

    code = 19
    status = 409


class CoordinatorNotFound(BrokerError):
    """No transaction coordinator of that number is open here."""

    code = 20
    status = 404


class InvalidTxnStatus(BrokerError):
    """The transaction is past the state that the request needs."""

    code = 21
    status = 409


class NotAllowed(BrokerError):
    """The operation makes no sense for this topic or configuration."""

    code = 22
    status = 405


class TransactionConflict(BrokerError):
    """Another transaction, or a plain acknowledgement, has acknowledged the message."""

    code = 23
    status = 409


class TransactionNotFound(BrokerError):
    """The transaction has ended or never existed."""

    code = 24
    status = 404


class ProducerFenced(BrokerError):
    """A newer exclusive producer has replaced this one."""

    code = 25
    status = 409
