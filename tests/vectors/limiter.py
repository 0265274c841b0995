"""Replays `limiter` scripts: grants, waits, refusals, and the time of the timer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from broker.managed_ledger import inflight_reads_limiter
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter, Permits
from foundation.model.errors import TooManyRequests
from tests.vectors.result import Result
from tests.vectors.scripts import Op, run_scripts


class LimiterReplay:
    def __init__(self, script: Op) -> None:
        config = script["config"]
        self.limiter = InflightReadsLimiter(
            config["budget"], config["queue_size"], config["timeout_ms"], fair=False
        )
        self.permits: dict[int, Permits] = {}
        self.callbacks: list[list[int | str]] = []

    def apply(self, op: Op) -> Op:
        self.callbacks = []
        got: Op = getattr(self, "do_" + op["op"])(op) or {}
        return got | {
            "callbacks": self.callbacks,
            "remaining": self.limiter.remaining_bytes,
            "queued": self.limiter.queued,
            "timer": self.limiter.timer_due_ns,
        }

    def do_acquire(self, op: Op) -> Op:
        try:
            permits = self.limiter.acquire(op["bytes"], op["now"], self.callback(op))
        except TooManyRequests:
            return {"result": "rejected", "permits": 0}
        if permits is None:
            return {"result": "queued", "permits": None}
        self.permits[op["id"]] = permits
        return {"result": "granted", "permits": permits.size_bytes}

    def callback(self, op: Op) -> Callable[[Permits | None], None]:
        def granted(permits: Permits | None) -> None:
            if permits is None:
                self.callbacks.append([op["id"], "timeout", 0])
            else:
                self.permits[op["id"]] = permits
                self.callbacks.append([op["id"], "granted", permits.size_bytes])
            if op.get("callback_throws"):
                raise RuntimeError("as the script says")

        return granted

    def do_try_acquire(self, op: Op) -> Op:
        permits = self.limiter.acquire_read_ahead(op["bytes"])
        if permits is None:
            return {"result": "refused", "permits": None}
        self.permits[op["id"]] = permits
        return {"result": "granted", "permits": permits.size_bytes}

    def do_release(self, op: Op) -> None:
        self.limiter.release(self.permits.pop(op["id"]), op["now"])

    def do_advance(self, op: Op) -> Op:
        fired_at = []
        while (due := self.limiter.timer_due_ns) is not None and due <= op["now"]:
            fired_at.append(due)
            self.limiter.timer_fired(due)
        return {"timer_fired_at": fired_at}

    def do_set_clock(self, op: Op) -> None:
        """The limiter learns the time with the next operation."""


def run_file(path: Path) -> Result:
    inflight_reads_limiter.log.disabled = (
        True  # Some callbacks throw, as the scripts say, and would fill the screen.
    )
    try:
        return run_scripts(path, LimiterReplay)
    finally:
        inflight_reads_limiter.log.disabled = False
