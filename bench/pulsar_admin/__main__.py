"""Runs a session of Apache's command-line tools against a broker, and against another one beside it.

    python -m bench.pulsar_admin PULSAR_HOME ADMIN_URL [--against ADMIN_URL] [--cluster] [--out FILE] [--page FILE]

PULSAR_HOME is an unpacked Apache Pulsar 4.0 or later. The commands of pulsar-admin, pulsar-client and pulsar-perf in
`commands.txt` run in order, those of the first two in one `pulsar-shell`, because a JVM for each would take minutes. The
session creates the tenant `shop` and the cluster `west`, and ends the broker. Start both brokers with
`forceDeleteNamespaceAllowed=true`, `forceDeleteTenantAllowed=true`, `transactionCoordinatorEnabled=true` and
`brokerDeleteInactiveTopicsEnabled=false`, and Magnetar with `brokerEntryMetadataInterceptors=` as in Apache's files.

With `--cluster` each address is of a cluster of two brokers, started with the same settings but for transactions, and the
commands are those of `cluster_commands.txt`. They create the tenant `shop` and delete it. An isolation policy tells
the brokers apart by their hosts: `advertisedAddress` is `localhost` for one, and `127.0.0.1` for the other.

Prints how many commands work by group, then each one that is refused. With `--against` also each difference of the
outputs, and ends with status 1 for a difference without a reason in `reasons.tsv`. `--page` writes the comparison as a page.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.pulsar_admin.compare import Comparison, compared
from bench.pulsar_admin.page import page, summary
from bench.pulsar_admin.session import Broker, Outcome, run


def main() -> int:
    """Runs the sessions and prints the report."""
    parser = argparse.ArgumentParser(
        "python -m bench.pulsar_admin", description="Try Apache's command-line tools."
    )
    parser.add_argument("pulsar_home", type=Path, help="folder of an unpacked Apache Pulsar")
    parser.add_argument("admin_url", help="admin address of the broker, such as http://localhost:8080")
    parser.add_argument("--against", help="admin address of another broker to compare with")
    parser.add_argument("--cluster", action="store_true", help="the addresses are of clusters of two brokers")
    parser.add_argument("--out", type=Path, help="file for the outputs of all commands, side by side")
    parser.add_argument("--page", type=Path, help="Markdown file for the comparison")
    arguments = parser.parse_args()
    if arguments.page is not None and arguments.against is None:
        parser.error("--page needs --against")
    find = Broker.leader_at if arguments.cluster else Broker.at
    brokers = [find(url) for url in (arguments.admin_url, arguments.against) if url is not None]
    with ThreadPoolExecutor() as pool:
        sessions = list(pool.map(lambda broker: run(arguments.pulsar_home, broker), brokers))
    print(summary(sessions[0]))
    if arguments.out is not None:
        arguments.out.write_text(_side_by_side(sessions), "utf-8")
    if len(brokers) == 1:
        return 0
    rows = compared(sessions[0], sessions[1], (brokers[0], brokers[1]))
    if arguments.page is not None:
        arguments.page.write_text(page(rows, of_clusters=arguments.cluster), "utf-8")
    return _report(rows)


def _side_by_side(sessions: list[list[Outcome]]) -> str:
    parts = (
        "\n--\n".join([f"$ {outcomes[0].command}", *(one.output for one in outcomes)])
        for outcomes in zip(*sessions, strict=True)
    )
    return "\n\n".join(parts) + "\n"


def _report(rows: list[Comparison]) -> int:
    unexplained = [one for one in rows if one.differences and not one.reason]
    alike = sum(not one.differences for one in rows)
    print(f"\n{len(rows)} commands: {alike} alike, {len(rows) - alike - len(unexplained)} explained")
    for one in unexplained:
        print(f"no reason: {one.command}: {'; '.join(one.differences)}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
