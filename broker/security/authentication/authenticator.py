"""Authenticator: asks the providers of a method, counts the outcomes, and knows when an answer must wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.security.authentication.counts import AuthenticationCounts
from broker.security.authentication.credentials import (
    AuthenticationFailed,
    Credentials,
    Identity,
    Provider,
)
from broker.security.authentication.failed_logins import FailedLogins
from broker.security.authentication.settings import AuthenticationSettings
from foundation.loop.rare_lines import RareLines


class Authenticator:
    """Finds the role that credentials prove. One per broker; none without `authenticationEnabled`."""

    def __init__(
        self,
        providers: Sequence[Provider],
        settings: AuthenticationSettings,
        *,
        now_ns: Callable[[], int],
        wall_s: Callable[[], float],
        lines: RareLines,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """`now_ns` is the monotonic clock, `wall_s` returns seconds since 1970; `lines` get failed logins."""
        self.providers = tuple(providers)
        """In the order of `authenticationProviders`."""
        self.settings = settings
        """Rules for credentials."""
        self.wall_s = wall_s
        """Returns seconds since 1970, the clock of expiries."""
        self.counts = AuthenticationCounts()
        """Outcomes since the start."""
        self.close = close
        """Ends threads and fetches of the providers."""
        self._now_ns = now_ns
        self._lines = lines
        self._failed = FailedLogins()

    async def identify(self, credentials: Credentials) -> Identity:
        """Returns the role that the credentials prove, or the anonymous one for a method without a provider.

        The providers of the method are asked in order; the first one that is convinced decides. Raises
        AuthenticationFailed with the reason of the last one.
        """
        failure = None
        for provider in self.providers:
            if provider.method != credentials.method:
                continue
            try:
                identity = await provider.authenticate(credentials)
            except AuthenticationFailed as error:
                failure = error
                self.counts.failures[provider.name, provider.method, error.reason] += 1
                continue
            self.counts.successes[provider.name, provider.method] += 1
            return identity
        if failure is not None:
            raise failure
        return self.anonymous()

    def anonymous(self) -> Identity:
        """Returns the role of clients without credentials. Raises AuthenticationFailed when there is none."""
        if not self.settings.anonymous_role:
            self.counts.failures["none", "none", "authentication is required"] += 1
            raise AuthenticationFailed("authentication is required")
        return Identity(self.settings.anonymous_role)

    def refusal_delay_s(self, where: str, host: str, error: AuthenticationFailed) -> float:
        """Logs a failure and returns the seconds by which its answer must wait.

        `where` names the client's side of the connection or the request.
        """
        self._lines.warning(f"! {where} is not authenticated: {error.reason}")
        return self._failed.failed(host, self._now_ns()) / 10**9
