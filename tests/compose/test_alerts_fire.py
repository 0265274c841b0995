"""Each alert rule fires on the series of its lesson, with the labels and in the rhythm of the processes that print them.

`promtool test rules` evaluates the rules over made values. Names and labels come from scrapes of a broker, a bookie and
re-replication, so a rule that joins two series by labels which differ is found here.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Final, NamedTuple

import pulsar
import pytest

from bookie_stub.http.exposition import render
from bookkeeper.repair.exposition import IN_A_BOOKIE
from bookkeeper.repair.exposition import render as render_copies
from bookkeeper.repair.stats import RecoveryStats
from broker.service.settings import ServiceSettings
from tests.bookie_stub.conftest import Bench
from tests.compose.test_alerts import FILES, alerts
from tests.vectors.broker_process import BrokerProcess

pytestmark = pytest.mark.peer

MINUTES: Final = 60
"""Length of each story; a value a minute, which is the broker's window of rates."""
STEADY: Final = "1+0x60"
ALWAYS: Final = "5+0x60"
ONCE: Final = "0x20 1x40"
"""A counter that grows by one after twenty minutes."""


class Story(NamedTuple):
    """The values that let one rule fire."""

    alert: str
    """Its name."""
    values: dict[str, str]
    """By name of a metric, its values in promtool's notation; every series of the metric has them."""
    at: int = MINUTES - 5
    """Minute at which the alert fires."""


def every(minutes: int) -> str:
    """A rate that is above zero in one window of so many minutes: the work is done at once, and then waits."""
    return " ".join("5" if minute % minutes == 0 else "0" for minute in range(MINUTES))


_UNREADABLE: Final = "replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION"
STORIES: Final = (
    Story("DeliveriesPaused", {"pulsar_subscription_blocked_on_unacked_messages": STEADY}),
    Story(
        "BacklogNearQuota",
        {"pulsar_storage_backlog_size": "95+0x60", "pulsar_storage_backlog_quota_limit": "100+0x60"},
    ),
    Story(
        "BacklogAgeNearQuota",
        {
            "pulsar_storage_backlog_age_seconds": "95+0x60",
            "pulsar_storage_backlog_quota_limit_time": "100+0x60",
        },
    ),
    Story(
        "SubscriptionAbandoned",
        {"pulsar_subscription_back_log": "7+0x90", "pulsar_subscription_consumers_count": "0+0x90"},
        at=80,
    ),
    Story(
        "MessagesExpireUnread",
        {"pulsar_subscription_msg_rate_expired": every(ServiceSettings().ttl_interval_min)},
    ),
    Story("MessagesWereLost", {"magnetar_subscription_holes_redelivered_total": ONCE}, at=25),
    Story("AcknowledgementsNotStored", {"magnetar_subscription_acks_in_memory": ALWAYS}),
    Story("MessagesEvicted", {"pulsar_storage_backlog_quota_exceeded_evictions_total": ONCE}, at=25),
    Story("BookieDown", {"up": "0+0x60"}),
    Story("BrokerDown", {"up": "0+0x60"}),
    Story(
        "ReadCacheThrashes",
        {
            "bookie_readahead_batch_count_sum": "0+60000x60",
            "bookie_readahead_batch_count_count": "0+600x60",
            "bookie_read_entry_count": "0+6000x60",
        },
    ),
    Story("BrokerLoopHeld", {"magnetar_event_loop_lag_seconds": ALWAYS}),
    Story("NoBrokerLeads", {"magnetar_cluster_has_leader": "1 0x59"}),
    Story("BundleWithoutOwner", {"magnetar_cluster_bundles_without_owner": ALWAYS}),
    Story("BrokerSessionSuspended", {"magnetar_cluster_serving": "1 0x59"}),
    Story("DeletionDoesNotEnd", {"magnetar_deletion_oldest_age_seconds": "0+60x60"}),
    Story("OrphanLedgersFound", {"magnetar_audit_findings": ALWAYS}),
    Story("LedgersMissing", {"magnetar_audit_findings": ALWAYS}),
    Story("ReadAheadIsWasted", {"magnetar_read_cache_wasted_readahead": "0.8+0x60"}),
    Story("LedgersLackCopies", {"magnetar_auditor_under_replicated_ledgers": ALWAYS}),
    Story("NothingRereplicates", {"magnetar_auditor_elected": "0+0x60"}),
    Story("EntriesCannotBeCopied", {_UNREADABLE: "0+5x60"}),
    Story("EntriesCannotBeCopied", {IN_A_BOOKIE + _UNREADABLE: "0+5x60"}),
    Story("BookieReadOnly", {"bookie_SERVER_STATUS": "0+0x60"}),
    Story(
        "BookieDirectoryFull", {"bookie_ledger_writable_dirs": "0+0x60", "bookie_ledger_num_dirs": "1+0x60"}
    ),
    Story("PublishingFails", {"pulsar_ml_AddEntryErrors": ALWAYS}),
    Story("ReadsFail", {"pulsar_ml_ReadEntriesErrors": ALWAYS}),
)


async def _scrape_of_a_bookie(folder: Path) -> str:
    bench = Bench(folder)
    text = render(bench.open()).decode()
    bench.close()
    return text


def tell_findings(admin_url: str) -> None:
    """Sends a result as `magnetar admin audit` does; without one there are no series."""
    findings = {"findings": {"orphan": 1, "missing-managed-ledger": 1, "lost": 1}}
    request = urllib.request.Request(
        f"{admin_url}/admin/v2/magnetar/audit",
        json.dumps(findings).encode(),
        {"Content-Type": "application/json"},
        method="POST",
    )
    urllib.request.urlopen(request, timeout=60).close()


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """By name of a metric, the labels of its series as they are scraped; two targets have names of their own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), memory=True) as broker:
        client = pulsar.Client(broker.addresses.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        client.subscribe("alerts", "s")
        client.create_producer("alerts").send(b"m")
        tell_findings(broker.addresses.admin)
        with urllib.request.urlopen(f"{broker.addresses.admin}/metrics", timeout=60) as answer:
            of_broker = answer.read().decode()
        client.close()
    of_bookie = asyncio.run(_scrape_of_a_bookie(tmp_path_factory.mktemp("bookie")))
    for prefix in ("", IN_A_BOOKIE):
        of_bookie += render_copies(RecoveryStats(), prefix).decode()
    found: dict[str, list[str]] = {}
    for job, text in (("broker", of_broker), ("bookie", of_bookie)):
        found.setdefault("up", []).append(f'{{job="{job}",instance="{job}:1"}}')
        for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.M):
            more = f",{labels}" if labels else ""
            found.setdefault(name, []).append(f'{{job="{job}",instance="{job}:1"{more}}}')
    return found


def test_every_alert_has_a_story() -> None:
    assert {story.alert for story in STORIES} == {alert.name for alert in alerts()}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.alert)
def test_alert_fires(story: Story, series: dict[str, list[str]], tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    fires = f'group(ALERTS{{alertname="{story.alert}",alertstate="firing"}})'
    values = [
        {"series": name + labels, "values": given}
        for name, given in story.values.items()
        for labels in series[name]
    ]
    expected = [{"expr": fires, "eval_time": f"{story.at}m", "exp_samples": [{"labels": "{}", "value": 1}]}]
    one = {"interval": "1m", "input_series": values, "promql_expr_test": expected}
    stated = {"rule_files": [str(path) for path in FILES], "evaluation_interval": "1m", "tests": [one]}
    # JSON is YAML too.
    (tmp_path / "story.yml").write_text(json.dumps(stated))
    done = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "story.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
