"""ReadPool: threads for reads that need the disk.

Memory answers most reads in the loop's thread; only misses come here. Threads start with the first miss, so a broker that
serves its tail from memory has none. Results go back to the loop in groups, one posted call for many.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from bookie_stub.base.errors import BookieError
from bookie_stub.base.posting import BoundCompletion, Post, post_quietly, run_safely

log = logging.getLogger(__name__)


class ReadPool:
    """Threads that run blocking work, at most `threads_max`. The completions of the work run in the loop."""

    def __init__(self, threads_max: int, post: Post) -> None:
        self._threads_max = threads_max
        self._post = post
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[tuple[Callable[[], BoundCompletion], BoundCompletion] | None] = SimpleQueue()
        self._answers: deque[BoundCompletion] = deque()
        self._posted = False
        self._unanswered = 0

    def submit(self, work: Callable[[], BoundCompletion], failed: BoundCompletion) -> None:
        """Runs `work` in a thread and its result in the loop.

        `failed` runs in the loop instead when `work` raises.
        To be called in the loop's thread.
        """
        self._unanswered += 1
        if len(self._threads) < min(self._threads_max, self._unanswered):
            thread = threading.Thread(target=self._run, name=f"bookie-read-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queue.put((work, failed))

    @property
    def queue_length(self) -> int:
        """Work that waits for a thread."""
        return self._queue.qsize()

    def close(self) -> None:
        """Ends the threads after the work that is queued. Completions are still posted."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            work, failed = job
            try:
                answer = work()
            except Exception as error:  # whatever went wrong, the caller gets an I/O error, never "no entry"
                log.error("read failed: %s", error, exc_info=not isinstance(error, BookieError | OSError))
                answer = failed
            self._answers.append(answer)
            # Two threads may both see False and both post; the second `deliver` then finds nothing. Append comes before
            # the look at the flag, so no completion is missed.
            if not self._posted:
                self._posted = True
                post_quietly(self._post, self.deliver)

    def deliver(self) -> None:
        """Runs all completions that are ready, in the loop's thread."""
        # The flag is cleared first: a completion that is appended from now on is posted again, at worst for nothing.
        self._posted = False
        while self._answers:
            self._unanswered -= 1
            run_safely(self._answers.popleft())
