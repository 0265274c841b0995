"""Replays `pending_reads` scripts: the storage reads issued, and the requests that each completion serves."""

from __future__ import annotations

from pathlib import Path

from broker.managed_ledger.storage_reads import StorageReads
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, PersistenceError
from foundation.model.range_set import EntryRange
from tests.fakes.reads import EntriesRead, RangeRequest, context_over
from tests.vectors.result import Result
from tests.vectors.scripts import Op, run_scripts


class PendingReadsReplay:
    def __init__(self, script: Op) -> None:
        self.context = context_over(self)
        self.reader = self.context.cache.reader("reader")
        self.reads = StorageReads(self.context)
        self.issued: list[tuple[int, int, int, EntriesRead]] = []
        self.storage_reads: list[list[int]] = []
        self.completed: list[list[int | str]] = []
        self.before = self.counters()

    def read(self, ledger: int, first: int, last: int, bytes_max: int, done: EntriesRead) -> None:
        """Storage's side: keep the read until the script completes or fails it."""
        self.storage_reads.append([len(self.issued), first, last])
        self.issued.append((ledger, first, last, done))

    def counters(self) -> dict[str, int]:
        stats = self.context.environment.caches.stats.pending_reads
        sides = {f"matched_overlapping_miss_{side}": count for side, count in stats.overlapping.items()}
        return sides | {
            "entries_read": stats.read,
            "entries_notread": stats.not_read,
            "matched": stats.matched,
            "matched_included": stats.matched_included,
            "missed": stats.missed,
        }

    def apply(self, op: Op) -> Op:
        self.storage_reads, self.completed = [], []
        getattr(self, "do_" + op["op"])(op)
        now = self.counters()
        counters = {
            name: count - self.before[name] for name, count in now.items() if count != self.before[name]
        }
        self.before = now
        return {"storage_reads": self.storage_reads, "completed": self.completed, "counters": counters}

    def do_read(self, op: Op) -> None:
        def done(entries: list[Entry], error: BrokerError | None) -> None:
            if error is not None:
                self.completed.append([op["id"], "failed"])
                return
            ids = [entry.entry_id for entry in entries]
            if ids != list(range(op["first"], op["last"] + 1)):
                self.completed.append([op["id"], f"entries {ids}"])
                return
            self.completed.append([op["id"], "ok", ids[0], ids[-1]])

        wanted = EntryRange(op["ledger"], op["first"], op["last"])
        RangeRequest(self.reader, wanted, done).begin(self.context, self.reads)

    def do_complete(self, op: Op) -> None:
        ledger, first, last, done = self.issued[op["storage_read"]]
        done([Entry(ledger, entry_id, b"", b"", 1) for entry_id in range(first, last + 1)], None)

    def do_fail(self, op: Op) -> None:
        self.issued[op["storage_read"]][3]([], PersistenceError("as the script says"))

    def do_invalidate_ledger(self, op: Op) -> None:
        self.reads.invalidate_ledger(op["ledger"])


def run_file(path: Path) -> Result:
    return run_scripts(path, PendingReadsReplay)
