"""Replays `eviction` scripts: removal queue, caches and manager, slot by slot."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.cache_stats import Reason
from entry_cache.entry_cache import EntryCache
from entry_cache.expected_reads import has_expected_reads
from entry_cache.policy import Removed
from entry_cache.reader import Reader
from entry_cache.removal_queue import RemovalQueue
from foundation.model.entry import Entry
from foundation.model.position import Position
from tests.fakes.whole_cache import Removals, WholeCache
from tests.vectors.result import Result
from tests.vectors.scripts import Op, run_scripts


class EvictionReplay:
    def __init__(self, script: Op) -> None:
        config = script["config"]
        self.manager = WholeCache(
            EntryCacheSettings(
                size_bytes_max=config["max_size"],
                watermark=config["watermark"],
                ttl_ns=config["ttl_ns"],
                requeues_max=config["max_requeue"],
                extend_recently_accessed=config["extend_accessed"],
                policy="pip430",
                profile=script["profile"],
            ),
            others=(Removals(self._on_evicted),),
        )
        assert isinstance(self.manager.policy, RemovalQueue)
        self.policy = self.manager.policy
        self.reader = Reader("reader", 1)
        self.cache_count = config["caches"]
        self.now = 0
        self.removed: list[list[int]] = []
        self.cache_of: dict[int, int] = {}
        """By the identity of an entry, which this object keeps alive in `offered`."""
        self.offered: list[Entry] = []

    def _on_evicted(self, entries: list[Entry], reason: Reason) -> None:
        for entry in entries:
            self.removed.append([self.cache_of[id(entry)], entry.ledger_id, entry.entry_id, entry.size])

    def cache(self, number: int) -> EntryCache:
        cache: EntryCache = self.manager.open(str(number))
        return cache

    def apply(self, op: Op) -> Op:
        self.now = op["now"]
        self.removed.clear()
        got: Op = getattr(self, "do_" + op["op"])(op) or {}
        got["removed"] = list(self.removed)
        if op["op"] == "clear_all":
            got["removed"].sort(key=op["expect"]["removed"].index)
        got["total"] = self.manager.used_bytes
        stats = self.manager.stats
        got["counters"] = [
            self.manager.inserted_entries,
            sum(stats.evicted_entries.values()),
            stats.size_evictions,
            self.manager.eviction.size_checks_due,
        ]
        slots = [self.slot(entry) for entry in self.manager.policy]
        lines = [
            "-" if slot is None else ",".join("n" if part is None else str(part) for part in slot)
            for slot in slots
        ]
        got["crc"] = zlib.crc32("".join(line + "\n" for line in lines).encode())
        if "queue" in op["expect"]:
            got["queue"] = slots
            got["caches"] = [
                [self.cache(number).size_bytes, self.cache(number).entries]
                for number in range(self.cache_count)
            ]
        return got

    def slot(self, entry: Entry) -> list[int | None] | None:
        if not entry.cached:
            return None
        return [
            self.cache_of[id(entry)],
            entry.ledger_id,
            entry.entry_id,
            entry.size,
            entry.requeue_count,
            int(entry.accessed),
            entry.expected_reads,
            entry.queued_at_ns,
        ]

    def count_wanted(self) -> list[int]:
        """Entries and bytes that are not counted, or have expected reads left."""
        self.policy.drop_invalidated()
        wanted = [
            entry.size for entry in self.policy if entry.expected_reads is None or has_expected_reads(entry)
        ]
        return [len(wanted), sum(wanted)]

    # Filling

    def offer(
        self, number: int, ledger: int, entry_id: int, length: int, expected: int
    ) -> tuple[bool, Entry]:
        """Returns True when it was inserted, and the entry that a reader of this insert would hold."""
        entry = Entry(ledger, entry_id, b"", bytes(length), 1)
        self.offered.append(entry)
        self.cache_of[id(entry)] = number
        run = [entry]
        return self.cache(number).insert_run(run, None if expected < 0 else expected, self.now) == 1, run[0]

    def do_insert(self, op: Op) -> Op:
        inserted, held = self.offer(op["cache"], op["ledger"], op["entry"], op["length"], op["expected"])
        if op.get("source_read"):
            self.manager.mark_delivered([held])
        return {"inserted": inserted}

    def do_insert_batch(self, op: Op) -> Op:
        return {"inserted": sum(self.offer(op["cache"], *entry)[0] for entry in op["entries"])}

    # Reading

    def do_get(self, op: Op) -> Op:
        entry = self.cache(op["cache"]).get(self.reader, op["ledger"], op["entry"])
        if entry is not None and op.get("consume"):
            self.manager.mark_delivered([entry])
        return {"hit": entry is not None}

    def do_get_range(self, op: Op) -> Op:
        hits = self.cache(op["cache"]).get_present(self.reader, op["ledger"], op["first"], op["last"])
        if op.get("consume"):
            self.manager.mark_delivered(hits)
        return {"hits": [entry.entry_id for entry in hits]}

    def do_mark_read(self, op: Op) -> Op:
        entry = self.cache(op["cache"]).peek(op["ledger"], op["entry"])
        if entry is None:
            return {"found": False, "expected": None}
        self.manager.mark_delivered([entry] * op["times"])
        return {"found": True, "expected": entry.expected_reads}

    def do_add_expected(self, op: Op) -> Op:
        entry = self.cache(op["cache"]).peek(op["ledger"], op["entry"])
        if entry is None:
            return {"found": False, "expected": None}
        self.manager.expect_redelivery(self.reader, [entry] * op["times"])
        return {"found": True, "expected": entry.expected_reads}

    # Evicting

    def do_evict_by_timestamp(self, op: Op) -> Op:
        return result_of(self.manager.evict_older(op["threshold"], self.now))

    def do_evict_by_size(self, op: Op) -> Op:
        try:
            return result_of(self.manager.evict_bytes(op["bytes"], self.now))
        except ValueError:
            return {"error": "illegal_argument"}

    def do_periodic(self, op: Op) -> None:
        self.manager.tick(self.now)

    def do_run_pending(self, op: Op) -> Op:
        due = self.manager.eviction.size_checks_due
        self.manager.run_pending(self.now)
        return {"ran": due}

    def do_non_evictable_size(self, op: Op) -> Op:
        return {"result": self.count_wanted()}

    # Invalidating

    def do_remove_range(self, op: Op) -> Op:
        end = Position(op["to_ledger"], op["to_entry"] + op["inclusive"])
        first = Position(op["ledger"], op["entry"])
        return result_of(self.cache(op["cache"]).invalidate_range(first, end, Reason.INVALIDATE, self.now))

    def do_invalidate_before(self, op: Op) -> None:
        self.cache(op["cache"]).invalidate_before(Position(op["ledger"], op["entry"]))

    def do_invalidate_ledger(self, op: Op) -> None:
        self.cache(op["cache"]).invalidate_ledger(op["ledger"])

    def do_clear(self, op: Op) -> None:
        self.cache(op["cache"]).clear()

    def do_remove_cache(self, op: Op) -> None:
        self.manager.remove(str(op["cache"]))

    def do_clear_all(self, op: Op) -> None:
        self.manager.clear()

    # Settings

    def change(self, **values: object) -> None:
        self.manager.reconfigure(replace(self.manager.settings, **values))

    def do_set_max_requeue(self, op: Op) -> None:
        self.change(requeues_max=op["value"])

    def do_set_extend_accessed(self, op: Op) -> None:
        self.change(extend_recently_accessed=op["value"])

    def do_set_max_size(self, op: Op) -> None:
        self.change(size_bytes_max=op["value"])

    def do_set_watermark(self, op: Op) -> None:
        self.change(watermark=op["value"])

    def do_set_ttl(self, op: Op) -> None:
        self.change(ttl_ns=op["value"])


def result_of(removed: Removed) -> Op:
    return {"result": [len(removed.entries), removed.size_bytes]}


def run_file(path: Path) -> Result:
    return run_scripts(path, EvictionReplay)
