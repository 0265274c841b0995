"""The record of a dormant topic from what the metadata store has of it, without opening it.

What the store does not tell has the value that an opening would give it: the last consumers left now, the topic was in use
now. The oldest message is as old as the ledgers allow, so a due moment is early rather than late; the look at it finds the
real time.
"""

from __future__ import annotations

from broker.managed_ledger.acks import Acks
from broker.managed_ledger.cursor_record import NO_LEDGER
from broker.managed_ledger.ledger_cursors import THREAD_BYTES_MIN
from broker.managed_ledger.ledger_list import LedgerList
from broker.managed_ledger.managed_ledger_info import (
    SHADOW_SOURCE,
    ManagedLedgerInfo,
    StoredNodes,
    ledger_list_of,
)
from broker.managed_ledger.records.pulsar_records import decode_cursor
from broker.service.consumer import SubscriptionType
from broker.service.internal_cursors import INTERNAL_CURSORS, UNLISTED_CURSORS
from broker.service.subscriptions.subscription import REPLICATED
from broker.service.topics.dormant_topic import (
    NO_NODE,
    NOT_KNOWN,
    NOTHING_WAITS,
    DormantSubscription,
    DormantTopic,
    Levels,
    Waiting,
)
from foundation.model.position import Position


def record_of_stored(
    info: ManagedLedgerInfo, nodes: StoredNodes, now_ns: int, *, keeps_nodes: bool
) -> DormantTopic | None:
    """Returns the record; None for a topic whose levels only an opening can tell. Raises MetadataError.

    That is a shadow topic, one that its broker did not close, one with ledgers that are still to be deleted, and one with a
    cursor that is large or has its position in a ledger. `info`: the decoded list of `nodes`.
    `keeps_nodes`: no other broker changes them.
    """
    if (
        SHADOW_SOURCE in info.properties
        or info.deleting
        or info.deleting_objects
        or any(one.closed_at_ms is None for one in info.ledgers)
    ):
        return None
    # The current ledger begins with the first entry, and its id is above all others.
    current_id = max([one.ledger_id for one in info.ledgers], default=-1) + 1
    ledgers = ledger_list_of(info, [one for one in info.ledgers if one.entries], current_id)
    subscriptions: list[DormantSubscription] = []
    marks: list[Position] = []
    backlogs: list[Waiting] = []
    for name, node in nodes.cursors:
        if len(node.value) > THREAD_BYTES_MIN:
            return None
        stored = decode_cursor(node.value)
        if stored.ledger_id != NO_LEDGER:
            return None
        acks = Acks.restore(ledgers, stored.info)
        marks.append(acks.mark_delete)
        if name not in UNLISTED_CURSORS:
            value, version = node if keeps_nodes else NO_NODE
            mark = acks.mark_delete
            backlog = ledgers.entries_between(mark, ledgers.last()) - acks.beyond.count
            backlogs.append(
                Waiting.after(ledgers, mark, _oldest_ms(info, ledgers, mark)) if backlog else NOTHING_WAITS
            )
            subscriptions.append(
                DormantSubscription(
                    name,
                    value,
                    backlog,
                    now_ns,
                    SubscriptionType.EXCLUSIVE,
                    REPLICATED in acks.properties or name in INTERNAL_CURSORS,
                    version,
                )
            )
    # `take_nodes` knows the cursors of subscriptions alone.
    complete = keeps_nodes and len(subscriptions) == len(nodes.cursors)
    levels = Levels.of(ledgers, marks, is_terminated=info.terminated is not None, waiting=subscriptions)
    return levels.record(
        nodes.info if complete else None,
        subscriptions,
        looked_ns=now_ns,
        used_at_ns=now_ns,
        oldest_ms=_oldest_ms(info, ledgers, min(marks)) if levels.has_backlog else NOT_KNOWN,
        backlogs=backlogs,
    )


def _oldest_ms(info: ManagedLedgerInfo, ledgers: LedgerList, slowest: Position) -> int:
    """Returns a time before which no entry after the position was added: the end of the ledger before, or of no ledger."""
    oldest = ledgers.next_valid(slowest).ledger_id
    ends_ms = [one.closed_at_ms for one in ledgers.infos() if one.ledger_id < oldest and one.closed_at_ms]
    return max(ends_ms, default=info.created_ms or NOT_KNOWN)
