"""Limits of open transactions: of a coordinator, a role and a connection, and of their time-outs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.service.settings import ServiceSettings
from foundation.model.errors import BrokerError
from foundation.value import Value

OPEN_MAX: Final = 20_000
"""Open transactions of a coordinator where no setting limits them; each takes about 1.5 KB."""
ROLE_PART: Final = 10
"""Roles that it takes to fill a coordinator, where no setting limits one of them."""


class TooManyTransactions(BrokerError):
    """A coordinator, role or connection has as many open transactions as it may; UnknownError, as in Pulsar."""


class TransactionLimits(Value):
    """The transactions that a coordinator admits."""

    open_max: int = OPEN_MAX
    """Open transactions of the coordinator."""
    role_max: int = OPEN_MAX // ROLE_PART
    """Open transactions of one role."""
    connection_max: int = 0
    """Open transactions that one connection has begun, 0 = no limit."""
    timeout_max_ms: int = 86_400_000
    """Longest time-out."""

    @classmethod
    def of(cls, settings: ServiceSettings) -> TransactionLimits:
        """Returns the limits of the settings."""
        open_max = settings.open_transactions_max or OPEN_MAX
        return cls(
            open_max,
            settings.role_transactions_max or max(1, open_max // ROLE_PART),
            settings.connection_transactions_max,
            settings.transaction_timeout_max_s * 1000,
        )


@dataclass(slots=True)
class OpenTransactions:
    """The transactions that one connection has begun."""

    count: int = 0
    """Those that are not over."""
