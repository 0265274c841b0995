"""The plan of one seed: the cluster, the load, the faults, and the time of each action."""

from __future__ import annotations

import random
from dataclasses import dataclass

from broker.compose.ledger_settings import LedgerSettings
from protocol.ledger_metadata import DigestType
from tests.sim.network import Faults


@dataclass(frozen=True)
class Plan:
    bookies: int
    settings: LedgerSettings
    entries: int
    pause_s: float
    """Mean time between two entries."""
    faults: Faults
    journal_error_rate: float
    metadata_error_rate: float
    metadata_slow_rate: float
    incidents_s: tuple[float, ...]
    """When a bookie crashes, or a client and a bookie stop hearing each other."""
    disk_loss_s: float | None
    writer_crashes_s: float | None
    """When, or it stays until it has finished or is fenced."""
    writer_closes: bool
    """True when the writer closes the ledger after its last entry."""
    recoveries_s: tuple[float, ...]
    """When others, who think that the writer is gone, begin to recover the ledger."""
    stall_s: tuple[float, float] | None
    """When the writer's messages begin to wait on their way, and for how long: then they all arrive."""
    deletion_s: float | None
    """How long after somebody has closed the ledger it is deleted, and the bookies collect it; None: never."""
    damage_rate: float
    """Each time that somebody begins to recover, one and the same bookie gives back this share of its entries with wrong
    bytes. Not where another one may have lost its disk: a good copy has to be left."""
    fewer: int
    """Bookies that those who come after the writer are configured with, though the ledger has others; 0: all."""
    chaos_s: float
    """After which nothing fails any more, and a last recovery closes whatever is open."""


def draw(rng: random.Random) -> Plan:
    chance = rng.random()
    if chance < 0.2:
        return _duel(rng)
    if chance < 0.4:
        return _late(rng)
    return _changing(rng) if chance < 0.6 else _any(rng)


def _duel(rng: random.Random) -> Plan:
    """A few entries on three bookies while somebody takes the ledger over, and every second message comes late: what
    the two do to each other depends on who reaches which bookie first."""
    return Plan(
        bookies=3,
        settings=LedgerSettings(3, 3, 2, sticky_reads=rng.random() < 0.5),
        entries=rng.randint(1, 3),
        pause_s=rng.choice((0.0005, 0.3)),
        faults=Faults(slow=rng.choice((0.4, 0.6))),
        journal_error_rate=0.0,
        metadata_error_rate=0.0,
        metadata_slow_rate=0.0,
        incidents_s=tuple(sorted(rng.uniform(0.0, 2.0) for _ in range(rng.choice((0, 2, 6))))),
        disk_loss_s=rng.uniform(0.0, 2.0) if rng.random() < 0.3 else None,
        writer_crashes_s=None,
        writer_closes=False,
        recoveries_s=tuple(sorted(rng.uniform(0.0, 0.1) for _ in range(rng.randint(1, 2)))),
        stall_s=None,
        deletion_s=None,
        damage_rate=0.0,
        fewer=rng.choice((0, 0, 1, 2)),
        chaos_s=4.0,
    )


def _late(rng: random.Random) -> Plan:
    """A writer whose entries are held up while its ledger is taken over, closed and often deleted; then they arrive."""
    taken_s = rng.uniform(0.2, 1.0)
    return Plan(
        bookies=rng.choice((3, 4)),
        settings=LedgerSettings(3, 3, 2, sticky_reads=rng.random() < 0.5),
        entries=200,
        pause_s=rng.choice((0.003, 0.01)),
        faults=Faults(),
        journal_error_rate=0.0,
        metadata_error_rate=0.0,
        metadata_slow_rate=0.0,
        incidents_s=(),
        disk_loss_s=taken_s + rng.uniform(0.0, 0.4) if rng.random() < 0.3 else None,
        writer_crashes_s=None,
        writer_closes=False,
        recoveries_s=(taken_s,),
        stall_s=(taken_s - rng.uniform(0.0, 0.02), rng.uniform(0.1, 0.8)),
        deletion_s=rng.uniform(0.0, 0.2) if rng.random() < 0.7 else None,
        damage_rate=0.0,
        fewer=rng.choice((0, 0, 1, 2)),
        chaos_s=4.0,
    )


def _changing(rng: random.Random) -> Plan:
    """Bookies that are slow and fail, and always others to take their places: the ensemble changes again and again, while
    answers of those that were replaced still come."""
    ensemble, write, ack = rng.choice(((2, 2, 2), (3, 3, 2), (3, 2, 2), (3, 3, 3)))
    return Plan(
        bookies=ensemble + 4,
        settings=LedgerSettings(ensemble, write, ack, sticky_reads=rng.random() < 0.5),
        entries=rng.randint(40, 80),
        pause_s=rng.choice((0.001, 0.02)),
        faults=Faults(slow=rng.choice((0.05, 0.2))),
        journal_error_rate=rng.choice((0.05, 0.2)),
        metadata_error_rate=0.0,
        metadata_slow_rate=rng.choice((0.0, 0.3)),
        incidents_s=tuple(sorted(rng.uniform(0.0, 2.0) for _ in range(8))),
        disk_loss_s=None,
        writer_crashes_s=rng.choice((None, rng.uniform(0.2, 3.0))),
        writer_closes=rng.random() < 0.5,
        recoveries_s=tuple(sorted(rng.uniform(0.2, 3.0) for _ in range(rng.choice((0, 1, 1, 2))))),
        stall_s=None,
        deletion_s=None,
        damage_rate=rng.choice((0.0, 0.3, 1.0)),
        fewer=0,
        chaos_s=6.0,
    )


def _any(rng: random.Random) -> Plan:
    ensemble = rng.choice((1, 2, 3, 3, 3, 4, 5))
    write = rng.randint(max(1, ensemble - 1), ensemble) if rng.random() < 0.8 else rng.randint(1, ensemble)
    ack = rng.randint(max(1, write - 1), write)
    entries, pause_s = rng.randint(20, 150), rng.choice((0.0005, 0.01, 0.05))
    chaos_s = rng.uniform(1.0, 8.0)
    busy_s = min(entries * pause_s + 0.2, chaos_s)
    calm = rng.random() < 0.1

    def moments(counts: tuple[int, ...]) -> tuple[float, ...]:
        """Mostly while the writer is at work."""
        return tuple(
            sorted(
                rng.uniform(0.0, busy_s if rng.random() < 0.8 else chaos_s) for _ in range(rng.choice(counts))
            )
        )

    disk_loss_s = next(iter(moments((1,))), None) if not calm and ack > 1 and rng.random() < 0.3 else None
    return Plan(
        bookies=ensemble + rng.choice((0, 1, 1, 2, 3)),
        settings=LedgerSettings(
            ensemble,
            write,
            ack,
            digest_type=rng.choice(tuple(DigestType)[:3]),
            password=rng.choice((b"", b"secret")),
            sticky_reads=rng.random() < 0.5,
            speculative_read_s=rng.choice((0.0, 0.01)),
        ),
        entries=entries,
        pause_s=pause_s,
        faults=Faults(
            drop=0.0 if calm else rng.choice((0.0, 0.0, 0.01, 0.05)),
            slow=0.0 if calm else rng.choice((0.0, 0.02, 0.1, 0.3)),
            twice=0.0 if calm else rng.choice((0.0, 0.02, 0.2)),
        ),
        journal_error_rate=0.0 if calm else rng.choice((0.0, 0.0, 0.02)),
        metadata_error_rate=0.0 if calm else rng.choice((0.0, 0.0, 0.05)),
        metadata_slow_rate=rng.choice((0.0, 0.1, 0.5)),
        incidents_s=() if calm else moments(tuple(range(9))),
        disk_loss_s=disk_loss_s,
        writer_crashes_s=rng.uniform(0.0, chaos_s) if rng.random() < 0.4 else None,
        writer_closes=rng.random() < 0.7,
        recoveries_s=moments((0, 1, 1, 1, 2, 3)),
        stall_s=(rng.uniform(0.0, busy_s), rng.uniform(0.05, 1.5)) if rng.random() < 0.2 else None,
        deletion_s=rng.uniform(0.0, 2.0) if rng.random() < 0.2 else None,
        damage_rate=rng.choice((0.0, 0.0, 0.1, 1.0)) if ack > 1 and disk_loss_s is None else 0.0,
        fewer=rng.choice((0, 0, 0, 1, 2)),
        chaos_s=chaos_s,
    )
