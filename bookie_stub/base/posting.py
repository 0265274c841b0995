"""Brings completions into the loop's thread.

They come from other threads and from the loop's own calls.

`Post` is `loop.call_soon_threadsafe` or a replacement: any thread may call it, and its argument runs later in the
loop's thread. Completions are posted in groups; one that raises does not harm the others of its group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

BoundCompletion = Callable[[], None]
"""A completion with its arguments bound."""
Post = Callable[[BoundCompletion], object]
"""Runs an `BoundCompletion` later in the loop's thread. Raises RuntimeError when the loop is closed."""

AtEndOfTurn = Callable[[Callable[[int], None]], object]
"""Calls back once at the end of the loop's turn, with its time in nanoseconds. To be called in the loop's thread."""


def post_quietly(post: Post, callback: BoundCompletion) -> None:
    """Posts a callback. Drops it when the loop is closed, since its caller has ended."""
    try:
        post(callback)
    except RuntimeError:
        log.debug("a completion was dropped: the loop is closed")


def run_safely(answer: BoundCompletion) -> None:
    """Runs a completion and logs its exception."""
    try:
        answer()
    except Exception:  # One caller's bug must not swallow the answers of the others.
        log.exception("a completion raised an exception; the others of its group are delivered")


class Answers:
    """Delivers the completions of a loop callback after its return.

    A completion that ran inside the call would surprise callers that have not finished their own work. One post for
    many completions is cheaper than one post each."""

    def __init__(self, post: Post) -> None:
        self.post = post
        """Brings a callback into the loop's thread."""
        self._waiting: list[BoundCompletion] = []

    def add(self, answer: BoundCompletion) -> None:
        """Queues a completion. To be called in the loop's thread."""
        self._waiting.append(answer)
        # The first one posts for all that follow before `_deliver` runs.
        if len(self._waiting) == 1:
            self.post(self._deliver)

    def _deliver(self) -> None:
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            run_safely(answer)
