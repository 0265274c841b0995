"""run_adds: adds many stored entries of a ledger to one bookie, with one completion for all.

Re-replication copies entries as they are stored, hundreds at a time. As single adds each costs a frame, a row in the table
of outstanding requests and a completion: half of the worker's CPU. The client over TCP takes them as a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

from bookkeeper.client.ledger_client import EntryAdds
from bookkeeper.client.result_codes import OK

RunDone = Callable[[int], None]
"""(rc): OK when every entry is stored, else that of an entry that is not."""


class AddRun(NamedTuple):
    """Stored entries of one ledger, at least one, that one bookie is to have."""

    ledger_id: int
    """The ledger."""
    entry_ids: Sequence[int]
    """The ids of `stored`, all different."""
    stored: Sequence[bytes]
    """The entries with their digests, as bookies store them."""
    master_key: bytes
    """Of the ledger."""
    recovery: bool
    """True for adds that a fenced ledger accepts."""
    done: RunDone
    """Called once, when the bookie has answered all of them."""


@runtime_checkable
class RunAdds(Protocol):
    """A bookie that takes a run at once."""

    def add_run(self, run: AddRun) -> None:
        """Adds a run."""
        ...


def run_adds(client: EntryAdds) -> Callable[[AddRun], None]:
    """Returns the client's `add_run`, or one that makes single adds of a run.

    Ask once for many runs: looking whether the client has one takes as long as many adds.
    """
    return client.add_run if isinstance(client, RunAdds) else partial(_add_each, client)


def _add_each(client: EntryAdds, run: AddRun) -> None:
    answers = _Answers(len(run.stored), run.done)
    for entry_id, entry in zip(run.entry_ids, run.stored, strict=True):
        client.add(
            run.ledger_id,
            entry_id,
            (entry, b"", b""),
            master_key=run.master_key,
            recovery=run.recovery,
            done=answers.answered,
        )


class _Answers:
    """Counts the answers to single adds."""

    def __init__(self, count: int, done: RunDone) -> None:
        self._left = count
        self._done = done
        self._rc = OK

    def answered(self, rc: int, _entry_id: int) -> None:
        """Counts the answer to one add; the last one ends the run."""
        self._left -= 1
        self._rc = self._rc or rc
        if not self._left:
            self._done(self._rc)
