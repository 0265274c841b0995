"""Writes the results of sessions as text: tables in Markdown. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from bench.pulsar_admin.compare import SHOWN_DIFFERENCES, Comparison
from bench.pulsar_admin.session import Outcome

_HEAD = """\
# A session of Apache's command-line tools

Written by `python -m bench.pulsar_admin PULSAR_HOME ADMIN_URL \
--against ADMIN_URL --page docs/reference/command_line_session.md`.

`pulsar-admin`, `pulsar-client` and `pulsar-perf` of Apache Pulsar 4.0.8 run the same commands, in this order, against
Magnetar and against Apache Pulsar 4.2.4 (standalone). Two outputs are the same when they differ only in addresses, times,
numbers of ledgers, measured rates, and the order of members and names. In the column of differences, *here* is Magnetar and
*there* is Apache Pulsar.

"""
_CLUSTER_HEAD = """\
# A session of pulsar-admin on two brokers

Written by `python -m bench.pulsar_admin PULSAR_HOME ADMIN_URL --against ADMIN_URL --cluster \
--page docs/reference/cluster_session.md`, from `bench/pulsar_admin/cluster_commands.txt`.

`pulsar-admin` and `pulsar-client` of Apache Pulsar 4.0.8 run the same commands, in this order, against two brokers of
Magnetar and against two of Apache Pulsar 4.2.4 (modular load manager), each on a ZooKeeper and one bookie. `admin@leader`
asks the broker that chooses owners, `admin@other` and `client` the other one: policies are set at one and read at the
other, and topics are asked for at the broker that does not own them. Outputs are
compared as in [the session on one broker](command_line_session.md).

"""


def summary(outcomes: Sequence[Outcome]) -> str:
    """Returns tables of one session: counts by group, and refused commands."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[_group(outcome.command)].append(outcome)
    lines = ["| group | commands | work |", "|---|---|---|"]
    for group, members in groups.items():
        lines.append(f"| {group} | {len(members)} | {sum(one.works for one in members)} |")
    lines.append(f"| all | {len(outcomes)} | {sum(one.works for one in outcomes)} |")
    lines += ["", "| refused | reason |", "|---|---|"]
    lines += [f"| `{one.command}` | {one.reason[:160]} |" for one in outcomes if not one.works]
    return "\n".join(lines)


def page(rows: Sequence[Comparison], *, of_clusters: bool = False) -> str:
    """Returns the comparison of two sessions as a page of the documentation; of clusters, with the differences alone."""
    alike = sum(not one.differences for one in rows)
    lines = [
        (_CLUSTER_HEAD if of_clusters else _HEAD)
        + f"{len(rows)} commands: {alike} outputs are the same, {len(rows) - alike} differ.",
        "",
    ]
    lines += ["| group | commands | same | differ |", "|---|---|---|---|"]
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for row in rows:
        groups[_group(row.command)].append(row)
    for group, members in groups.items():
        same = sum(not one.differences for one in members)
        lines.append(f"| {group} | {len(members)} | {same} | {len(members) - same} |")
    lines += ["", "| command | same | difference and reason |", "|---|---|---|"]
    lines += [_row(row) for row in rows if row.differences or not of_clusters]
    return "\n".join(lines) + "\n"


def _row(row: Comparison) -> str:
    command = row.command.replace("|", "\\|")
    if not row.differences:
        refused = "" if row.works else "both refuse"
        return f"| `{command}` | yes | {refused} |"
    shown = "; ".join(row.differences[:SHOWN_DIFFERENCES])
    more = len(row.differences) - SHOWN_DIFFERENCES
    rest = f"; {more} more" if more > 0 else ""
    return f"| `{command}` | no | {shown}{rest}. {row.reason} |"


def _group(command: str) -> str:
    tool, word = command.split()[:2]
    return word if tool.startswith("admin") else f"pulsar-{tool}"
