"""AuditTrail: one structured line for each admin write and each refused access.

Logger `magnetar.audit`. The fields of a line are `role` and `original` (of the principal), `peer` (address of the client),
`action` (HTTP method or command), `target` (path, topic or namespace), `status` (of the HTTP answer, or the error on the
wire) and `outcome` (`done`, `failed` or `refused`).

A client chooses its role and its paths. So each text is cut, and characters that are not printable are escaped: no text
can forge a second line. A client may be refused thousands of times a second, so each peer has a token bucket for such
lines; the next line says how many were left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.security.principal import Principal

LINES_AT_ONCE: Final = 10
"""Refused accesses of one peer that get a line each, after a time without any."""
LINE_INTERVAL_NS: Final = 10**9
"""Time after which a peer may have one more line."""
PEERS_MAX: Final = 1000
"""Peers whose lines are counted one by one; all others share one bucket."""
TEXT_CHARACTERS_MAX: Final = 500
"""Characters of one field."""

log = logging.getLogger("magnetar.audit")


def shown(text: str) -> str:
    """Returns a text for a log line: at most TEXT_CHARACTERS_MAX characters, those that are not printable escaped."""
    cut = text if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX] + "…"
    if cut.isprintable():
        return cut
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in cut
    )


@dataclass(slots=True)
class _Peer:
    """The token bucket of one peer, as the time at which it is full again."""

    full_at_ns: int = 0
    left_out: int = 0


class AuditTrail:
    """Writes the lines."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns` is the monotonic clock."""
        self._now_ns = now_ns
        self._peers: dict[str, _Peer] = {}
        self._others = _Peer()
        self.refused_count = 0
        """Refused accesses since the start, those without a line included."""

    def wrote(
        self, principal: Principal, peer: str, action: str, target: str, status: int | str, *, failed: bool
    ) -> None:
        """Writes a line for an admin write that was carried out or that failed."""
        outcome = "failed" if failed else "done"
        self._write(logging.INFO, principal, peer, action, target, status, outcome, 0)

    def refused(self, principal: Principal, peer: str, action: str, target: str, status: int | str) -> None:
        """Writes a line for a refused access, or counts it for the peer's next line."""
        self.refused_count += 1
        left_out = self._left_out_before(peer.rpartition(":")[0] or peer)
        if left_out is not None:
            self._write(logging.WARNING, principal, peer, action, target, status, "refused", left_out)

    def _left_out_before(self, host: str) -> int | None:
        """Returns the number of lines left out since the host's last one; None if this one is left out too."""
        now_ns = self._now_ns()
        state = self._peers.get(host) or self._peer(host, now_ns)
        if state.full_at_ns > now_ns + (LINES_AT_ONCE - 1) * LINE_INTERVAL_NS:
            state.left_out += 1
            return None
        state.full_at_ns = max(state.full_at_ns, now_ns) + LINE_INTERVAL_NS
        left_out, state.left_out = state.left_out, 0
        return left_out

    def _peer(self, host: str, now_ns: int) -> _Peer:
        if len(self._peers) >= PEERS_MAX:
            # A peer with a full bucket is as good as unknown, unless lines of it were left out.
            self._peers = {
                name: state
                for name, state in self._peers.items()
                if state.full_at_ns > now_ns or state.left_out
            }
        if len(self._peers) >= PEERS_MAX:
            return self._others
        return self._peers.setdefault(host, _Peer())

    def _write(
        self,
        level: int,
        principal: Principal,
        peer: str,
        action: str,
        target: str,
        status: int | str,
        outcome: str,
        left_out: int,
    ) -> None:
        fields: dict[str, object] = {
            "role": shown(principal.role or ""),
            "peer": peer,
            "action": action,
            "target": shown(target),
            "status": status,
            "outcome": outcome,
        }
        if principal.original is not None:
            fields["original"] = shown(principal.original)
        if left_out:
            fields["left_out"] = left_out
        log.log(level, "%s", outcome, extra=fields)
