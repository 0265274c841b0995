"""LoadReports: what this broker tells the others of its load, in its registration.

A report is written when a number in it has changed by more than `loadBalancerReportUpdateThresholdPercentage`, when a bundle
has come or gone, and after `loadBalancerReportUpdateMaxIntervalMinutes`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from broker.cluster.balance_settings import BalanceSettings
from broker.cluster.leases import Leases
from broker.cluster.loads import NO_LOAD, BrokerLoad, differs
from broker.cluster.members import Members
from broker.cluster.records import LoadReport, encode_member, member_json
from broker.service.topics.topic_ownership import Addresses
from foundation.model.errors import BrokerError
from foundation.value import Json

log = logging.getLogger("magnetar")


async def _not_measured() -> BrokerLoad:
    """Stands for a measurement before there is one."""
    return BrokerLoad()


class LoadReports:
    """The reports of one broker."""

    def __init__(
        self,
        members: Members,
        leases: Leases,
        version: str,
        settings: Callable[[], BalanceSettings],
        wall_ms: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        """`version`: Magnetar's. `wall_ms` is the time in reports, `now_ms` a clock that nobody sets."""
        self.measure: Callable[[], Awaitable[BrokerLoad]] = _not_measured
        """Returns the load of this broker and its bundles; set once there is something to measure."""
        self._members = members
        self._leases = leases
        self._version = version
        self._settings = settings
        self._wall_ms = wall_ms
        self._now_ms = now_ms
        self._started_ms = wall_ms()
        self._own = Addresses()
        self._measured = BrokerLoad()
        self._written = BrokerLoad()
        self._written_ms = 0

    @property
    def load(self) -> BrokerLoad:
        """The load that was measured last, with the bundles of now."""
        measured = self._measured.bundles
        return self._measured.with_bundles({one: measured.get(one, NO_LOAD) for one in self._leases})

    def begin(self, own: Addresses) -> bytes:
        """Returns the first registration of a broker with these addresses."""
        self._own = own
        return encode_member(own, self._version, self._started_ms, LoadReport(self._wall_ms(), BrokerLoad()))

    async def tick(self) -> None:
        """Measures, and writes a report if one is due. Errors are logged, and the next tick tries again."""
        self._measured = await self.measure()
        load = self.load
        if self._is_due(load):
            report = self._report_of(load)
            try:
                await self._members.report(encode_member(self._own, self._version, self._started_ms, report))
            except BrokerError as error:
                log.warning("! the load report cannot be written: %s", error)
            else:
                self._written, self._written_ms = load, self._now_ms()

    def _is_due(self, now: BrokerLoad) -> bool:
        settings, before = self._settings(), self._written
        # Each bundle that comes or goes, whatever the threshold: others choose by it.
        if now.bundles.keys() != before.bundles.keys():
            return True
        is_old = self._now_ms() - self._written_ms > settings.report_most_ms
        return settings.enabled and (is_old or differs(before, now, settings.weights, settings.report_change))

    async def now(self) -> dict[str, Json]:
        """Returns the report of now, which is not written."""
        self._measured = await self.measure()
        return member_json(self._own, self._version, self._started_ms, self._report_of(self.load))

    def _report_of(self, load: BrokerLoad) -> LoadReport:
        before, now = self._written.bundles, load.bundles
        gained, lost = [one for one in now if one not in before], [one for one in before if one not in now]
        return LoadReport(self._wall_ms(), load, gained, lost)
