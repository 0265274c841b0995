"""Attacks a broker process, one kind after the other, and judges its state after each.

Law of the place, the same for every attack: a canary on connections of its own goes on producing and consuming
meanwhile; resident memory is back within bounds afterwards; the log has at most one line per connection that
ended, and never a traceback; the process lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.fuzz.attacks import ATTACKS
from tests.fuzz.corpus import message_frame
from tests.fuzz.peers import ANSWERED, CLOSED, WAITING, Outcomes, Target, open_producer
from tests.support.raw_client import RawConnection, build_command
from tests.vectors.broker_process import BrokerProcess

MEMORY_GROWTH_BYTES_MAX: Final = 96 * 1024 * 1024
"""Growth of memory allowed over a whole round; covers the cache and buffers that the allocator keeps."""

CANARY_MESSAGE_S_MAX: Final = 60.0
"""A well-behaved client may notice a flood on a busy machine; one that a flood starves waits as long as the flood."""

_CANARY_PAUSE_S: Final = 0.02
_DAMAGED: Final = "has a wrong checksum"
_PEER: Final = re.compile(r"\d+\.\d+\.\d+\.\d+:\d+")
"""The address of a connection in a line of the log."""


@dataclass(slots=True)
class Canary:
    """A producer and a consumer that behave. `slowest_s`: the longest message from SEND to MESSAGE."""

    producing: RawConnection
    consuming: RawConnection
    rng: Random
    messages: int = 0
    slowest_s: float = 0.0

    @classmethod
    async def start(cls, pulsar: str, seed: int) -> Canary:
        topic = f"persistent://public/default/canary-{seed:x}"
        producing, consuming = await RawConnection.open(pulsar), await RawConnection.open(pulsar)
        for connection in (producing, consuming):
            await connection.connect()
        await open_producer(producing, topic)
        consuming.send(
            "SUBSCRIBE", topic=topic, subscription="canary", subType="Exclusive", consumer_id=1, request_id=3
        )
        await consuming.receive("SUCCESS")
        return cls(producing, consuming, Random(seed))

    async def beat(self) -> None:
        """One message there and back: receipt, delivery, acknowledgement."""
        began = time.monotonic()
        self.consuming.send("FLOW", consumer_id=1, messagePermits=1)
        command = build_command("SEND", {"producer_id": 1, "sequence_id": self.messages})
        self.producing.send_bytes(message_frame(command, self.rng))
        receipt = (
            await self.producing.receive("SEND_RECEIPT", timeout_s=CANARY_MESSAGE_S_MAX)
        ).command.send_receipt
        assert receipt.sequence_id == self.messages
        message = (await self.consuming.receive("MESSAGE", timeout_s=CANARY_MESSAGE_S_MAX)).command.message
        assert message.message_id.entryId == receipt.message_id.entryId
        self.consuming.send(
            "ACK",
            consumer_id=1,
            ack_type="Individual",
            message_id=[{"ledgerId": message.message_id.ledgerId, "entryId": message.message_id.entryId}],
            request_id=self.messages,
        )
        await self.consuming.receive("ACK_RESPONSE", timeout_s=CANARY_MESSAGE_S_MAX)
        self.messages += 1
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    async def sing(self) -> None:
        while True:
            await self.beat()
            await asyncio.sleep(_CANARY_PAUSE_S)

    async def close(self) -> None:
        await self.producing.close()
        await self.consuming.close()


@dataclass(frozen=True, slots=True)
class Finding:
    attack: str
    outcomes: Outcomes
    seconds: float
    log_lines: int
    resident_growth_bytes: int
    faults: tuple[str, ...]

    def __str__(self) -> str:
        counts = " ".join(f"{name} {self.outcomes[name]:>7}" for name in (CLOSED, ANSWERED, WAITING))
        text = (
            f"{self.attack:<22} {counts}  log lines {self.log_lines:>4}"
            f"  memory {self.resident_growth_bytes / 2**20:+7.1f} MiB  {self.seconds:5.1f} s"
        )
        return "\n".join([text, *(f"  FAULT {fault}" for fault in self.faults)])


@dataclass(slots=True)
class Report:
    seed: int
    findings: list[Finding] = field(default_factory=list)
    canary_messages: int = 0
    canary_slowest_s: float = 0.0
    resident_growth_bytes: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def all_faults(self) -> list[str]:
        return [f"{one.attack}: {fault}" for one in self.findings for fault in one.faults] + self.faults

    def summary(self) -> str:
        total: Outcomes = sum((one.outcomes for one in self.findings), Outcomes())
        return (
            f"{len(self.findings)} attacks, {sum(total.values())} inputs: {total[CLOSED]} closed, "
            f"{total[ANSWERED]} answered, {total[WAITING]} without an answer; canary {self.canary_messages} "
            f"messages, slowest {self.canary_slowest_s * 1000:.0f} ms; memory "
            f"{self.resident_growth_bytes / 2**20:+.1f} MiB; seed {self.seed}; {len(self.all_faults)} faults"
        )


async def run_round(
    broker: BrokerProcess, seed: int, *, scale: int = 1, told: Callable[[Finding], None] | None = None
) -> Report:
    """Every attack once, up to one that the broker does not survive."""
    report = Report(seed)
    rng = Random(seed)
    canary = await Canary.start(broker.addresses.pulsar, seed)
    await canary.beat()
    resident_before = broker.resident_bytes()
    singing = asyncio.create_task(canary.sing())
    try:
        for attack in ATTACKS:
            target = Target(broker.addresses.pulsar, Random(rng.getrandbits(64)), scale)
            finding = await _run_attack(attack, target, broker, singing)
            report.findings.append(finding)
            if told is not None:
                told(finding)
            if singing.done() or not broker.alive():
                break
    finally:
        singing.cancel()
        with contextlib.suppress(asyncio.CancelledError, AssertionError, ConnectionError, TimeoutError):
            await singing
        await canary.close()
    report.canary_messages, report.canary_slowest_s = canary.messages, canary.slowest_s
    report.resident_growth_bytes = broker.resident_bytes() - resident_before if broker.alive() else 0
    if report.canary_slowest_s > CANARY_MESSAGE_S_MAX:
        report.faults.append(f"a message of the canary took {report.canary_slowest_s:.1f} s")
    if report.resident_growth_bytes > MEMORY_GROWTH_BYTES_MAX:
        report.faults.append(f"memory grew by {report.resident_growth_bytes / 2**20:.1f} MiB")
    return report


async def _run_attack(
    attack: Callable[[Target], Awaitable[Outcomes]],
    target: Target,
    broker: BrokerProcess,
    singing: asyncio.Task[None],
) -> Finding:
    faults: list[str] = []
    outcomes = Outcomes()
    resident, lines_before, began = broker.resident_bytes(), len(broker.log_lines()), time.monotonic()
    try:
        outcomes = await attack(target)
    except (AssertionError, ConnectionError, TimeoutError) as problem:
        faults.append(f"{type(problem).__name__} {problem}")
    seconds = time.monotonic() - began
    if singing.done():
        faults.append(f"the canary died: {singing.exception()!r}")
    if not broker.alive():
        faults.append(f"the broker died\n{broker.log_tail()}")
        return Finding(attack.__name__, outcomes, seconds, 0, 0, tuple(faults))
    # Lines that come later than this are among those of the next attack; the rules for them are the same.
    warnings = list(_warnings(broker.log_lines()[lines_before:]))
    faults += faults_in(warnings, seconds)
    growth = broker.resident_bytes() - resident
    if growth > MEMORY_GROWTH_BYTES_MAX:
        faults.append(f"memory grew by {growth / 2**20:.1f} MiB")
    return Finding(attack.__name__, outcomes, seconds, len(warnings), growth, tuple(faults))


def faults_in(lines: Iterable[str], seconds: float = 0) -> list[str]:
    """Returns what these lines of `seconds` must not have: a traceback, two lines on one connection.

    Messages with a wrong checksum may have a line a second (`RareLines`), because their connection stays open. Ports are not
    used twice within one attack: the system gives thousands of others first.
    """
    warnings = list(_warnings(lines))
    damaged = [line for line in warnings if _DAMAGED in line]
    others = [line for line in warnings if _DAMAGED not in line]
    peers = Counter(found[0] if (found := _PEER.search(line)) else "no address" for line in others)
    faults = [f"{count} log lines on {peer}" for peer, count in peers.items() if count > 1]
    if len(damaged) > 1 + seconds:
        faults.append(f"{len(damaged)} log lines about wrong checksums in {seconds:.1f} s")
    return (
        faults[:1] + [f"a traceback in the log: {line:.1500}" for line in warnings if "Traceback" in line][:1]
    )


def _warnings(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        try:
            level = json.loads(line)["level"]
        except (ValueError, KeyError, TypeError):
            # Whatever is no record of the broker's log, such as a bare traceback, counts as well.
            level = "ERROR"
        if level not in ("INFO", "DEBUG"):
            yield line
