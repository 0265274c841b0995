"""From the bookie's threads, and from calls that must not complete inside themselves, into the loop.

`Post` is `loop.call_soon_threadsafe` or the like: callable from any thread, runs its argument later in the
loop's thread. What is posted is a group of completions; one that raises does not harm the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

Answer = Callable[[], None]
Post = Callable[[Answer], object]


def post_quietly(post: Post, callback: Answer) -> None:
    """For the time when the loop may be closed already."""
    try:
        post(callback)
    except RuntimeError:
        log.debug("the loop is closed, nobody hears the answer")


def run_safely(answer: Answer) -> None:
    try:
        answer()
    except Exception:  # one caller's bug must not swallow the answers of the others
        log.exception("a completion failed")


class Answers:
    """Completions of the loop's own calls, delivered together after the current callback."""

    __slots__ = ("_post", "_waiting")

    def __init__(self, post: Post) -> None:
        self._post = post
        self._waiting: list[Answer] = []

    def add(self, answer: Answer) -> None:
        self._waiting.append(answer)
        if len(self._waiting) == 1:
            self._post(self._deliver)

    def _deliver(self) -> None:
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            run_safely(answer)
