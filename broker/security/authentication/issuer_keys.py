"""IssuerKeys: the public keys of OpenID providers, fetched when first needed and kept for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.security.authentication.credentials import AuthenticationFailed
from broker.security.authentication.settings import AuthenticationSettings
from broker.security.authentication.signatures import Claims, KeyRing
from foundation.loop.rare_lines import RareLines
from foundation.units import NS_PER_SECOND

RETRY_NS = 1 * NS_PER_SECOND
"""Time after a failed fetch in which no other is tried for the issuer."""


class FetchKeys(Protocol):
    """Fetches the keys of an issuer."""

    async def __call__(self, issuer: str) -> KeyRing:
        """Returns the keys. Raises ValueError with the reason."""
        ...


@dataclass(slots=True)
class _Kept:
    """The keys of one issuer."""

    ring: KeyRing | None = None
    fetched_ns: int = 0
    failed_ns: int | None = None
    fetching: asyncio.Task[None] | None = None


class IssuerKeys:
    """Keys by issuer: one fetch at a time for each, old keys while new ones are fetched, a bounded number of issuers."""

    def __init__(
        self,
        fetch: FetchKeys,
        settings: AuthenticationSettings,
        now_ns: Callable[[], int],
        lines: RareLines,
    ) -> None:
        """`now_ns` is the monotonic clock; `lines` get the reasons of failed fetches."""
        self._fetch = fetch
        self._settings = settings
        self._now_ns = now_ns
        self._lines = lines
        # Least recently used first.
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def of(self, issuer: str, header: Claims) -> KeyRing:
        """Returns the keys of the issuer; fetches them if there are none, or none for this header.

        Raises AuthenticationFailed when the issuer gives none.
        """
        kept = self._kept.setdefault(issuer, _Kept())
        self._kept.move_to_end(issuer)
        self._forget_above_limit()
        settings, age_ns = self._settings, self._now_ns() - kept.fetched_ns
        if kept.ring is not None and age_ns < settings.openid_expiry_s * NS_PER_SECOND:
            if kept.ring.find(header) is not None:
                if age_ns >= settings.openid_refresh_s * NS_PER_SECOND:
                    self._begin(issuer, kept)
                return kept.ring
            if age_ns < settings.openid_miss_s * NS_PER_SECOND:
                # Tokens with invented keys must not cause a fetch each.
                return kept.ring
        else:
            kept.ring = None
        fetching = self._begin(issuer, kept)
        if fetching is not None:
            # Shielded: a client that leaves must not end the fetch for the others.
            await asyncio.shield(fetching)
        if kept.ring is None:
            raise AuthenticationFailed("the issuer of the token gives no keys")
        return kept.ring

    def _begin(self, issuer: str, kept: _Kept) -> asyncio.Task[None] | None:
        """Starts a fetch, or returns the one that runs; None right after one that failed."""
        if kept.fetching is None:
            if kept.failed_ns is not None and self._now_ns() - kept.failed_ns < RETRY_NS:
                return None
            kept.fetching = asyncio.create_task(self._renew(issuer, kept), name=f"keys of {issuer}")
        return kept.fetching

    async def _renew(self, issuer: str, kept: _Kept) -> None:
        try:
            kept.ring = await self._fetch(issuer)
            kept.fetched_ns, kept.failed_ns = self._now_ns(), None
        except ValueError as error:
            kept.failed_ns = self._now_ns()
            self._lines.warning(f"! the keys of {issuer} cannot be fetched: {error}")
        finally:
            kept.fetching = None

    def _forget_above_limit(self) -> None:
        while len(self._kept) > self._settings.openid_issuers_kept:
            _, oldest = self._kept.popitem(last=False)
            if oldest.fetching is not None:
                oldest.fetching.cancel()

    def close(self) -> None:
        """Ends fetches that run."""
        for kept in self._kept.values():
            if kept.fetching is not None:
                kept.fetching.cancel()
