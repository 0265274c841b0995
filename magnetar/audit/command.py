"""`magnetar admin audit`: finds leaks in a running cluster and takes them out of use; without a flag it changes nothing."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from foundation.model.errors import MetadataError
from magnetar.clients.admin_client import AdminAddress, admin_address, ask, send
from magnetar.clients.client import CommandError
from magnetar.process.shared_options import add_admin_url

if TYPE_CHECKING:
    from bookkeeper.metadata.metadata_store import MetadataStore
    from magnetar.audit.facts import AuditFinding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the command, apart from the address of the metadata store."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--quarantine",
        action="store_true",
        help="take the findings of topics and orphaned ledgers out of use",
    )
    what.add_argument("--list", action="store_true", help="show what is in quarantine")
    what.add_argument("--put-back", metavar="SUBJECT", help="put a node (path) or a ledger (id) back")
    what.add_argument(
        "--export", type=Path, metavar="FOLDER", help="write a copy of all that is in quarantine"
    )
    what.add_argument(
        "--delete", type=Path, metavar="FOLDER", help="delete what is in quarantine and exported to FOLDER"
    )
    parser.add_argument(
        "--pause", type=float, default=5.0, metavar="S", help="between both looks at the store (default 5)"
    )
    parser.add_argument(
        "--grace-seconds",
        type=int,
        default=86_400,
        metavar="S",
        help="nodes and ledgers younger than this are left out, where the store keeps times (default 86400, a day)",
    )
    parser.add_argument(
        "--read-ledgers",
        action="store_true",
        help="also read both ends of every closed ledger, through the broker",
    )
    add_admin_url(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command: 0 without findings and after each action, 1 with findings. Raises CommandError."""
    try:
        return asyncio.run(_run(arguments))
    except (MetadataError, OSError) as error:
        raise CommandError(str(error)) from error


async def _run(arguments: argparse.Namespace) -> int:
    from magnetar.audit import quarantine

    address = admin_address(arguments)
    if not (arguments.list or arguments.put_back or arguments.export or arguments.delete):
        return await _audit(arguments, address)
    store = await _open(arguments.metadata_url)

    def request(method: str, path: str) -> object:
        return ask(address, method, path).body

    try:
        if arguments.list:
            for subject, record in await quarantine.listed(store):
                print(f"{subject}  since {_time(record.get('since'))}  {record.get('reason')}")
        elif arguments.put_back:
            await quarantine.put_back(store, arguments.put_back)
            print(f"{arguments.put_back} is back")
        elif arguments.export:
            count = await quarantine.export(store, arguments.export, request)
            print(f"{count} copies in {arguments.export}")
        else:
            for line in await quarantine.delete(store, arguments.delete, request):
                print(line)
    finally:
        await store.close()
    return 0


async def _audit(arguments: argparse.Namespace, address: AdminAddress) -> int:
    from bookkeeper.leaks.rules import is_old_enough
    from magnetar.audit import quarantine
    from magnetar.audit.facts import gather, judge
    from magnetar.audit.used_schemas import without_used_schemas
    from magnetar.snapshot.node_sources import nodes_of

    first = set(judge(gather(nodes_of(arguments.metadata_url))))
    # A second look: what a broker writes at this moment is not whole in one of both.
    await asyncio.sleep(arguments.pause if first else 0)
    facts = gather(nodes_of(arguments.metadata_url))
    both = sorted(first & set(judge(facts)), key=lambda one: one[:3])
    now_ms = time.time_ns() // 1_000_000
    found = [one for one in both if is_old_enough(one.at_ms, now_ms, arguments.grace_seconds)]
    young = len(both) - len(found)
    try:
        found = await asyncio.to_thread(without_used_schemas, found, address)
    except CommandError:
        # A stopped cluster can be audited too; the reason of such a finding says what is not known.
        if arguments.quarantine:
            raise
    if arguments.read_ledgers:
        found += await asyncio.to_thread(_unreadable, facts.closed, address)
    for one in found:
        print(f"{one.audit}  {one.kind}  {one.subject}  {one.reason}")
    if young:
        print(f"{young} younger than {arguments.grace_seconds} s are left out; --grace-seconds 0 shows them")
    print(_summary(found, facts.unreadable, changed=arguments.quarantine))
    await asyncio.to_thread(_tell, found, address)
    if not arguments.quarantine:
        return 1 if found else 0
    store = await _open(arguments.metadata_url)
    try:
        for one in filter(quarantine.may_enter, found):
            if one.audit == "ledgers" and facts.unreadable:
                # Such a node may name it.
                print(f"{one.subject} stays: {facts.unreadable} nodes could not be read")
                continue
            print(f"{one.subject} {await quarantine.put_in(store, one)}")
    finally:
        await store.close()
    return 0


def _unreadable(closed: dict[int, int], address: AdminAddress) -> list[AuditFinding]:
    from magnetar.audit.facts import AuditFinding

    found = []
    for ledger_id, entries in sorted(closed.items()):
        for first in sorted({0, entries - 1}) if entries else ():
            try:
                ask(address, "GET", f"/admin/v2/magnetar/ledgers/{ledger_id}/entries?first={first}")
            except CommandError as error:
                found.append(AuditFinding("ledgers", "lost", str(ledger_id), f"entry {first}: {error}", None))
                break
    return found


def _tell(found: list[AuditFinding], address: AdminAddress) -> None:
    """Tells the broker, whose metrics show the numbers until the next audit."""
    counts = Counter({"orphan": 0})
    counts.update(one.kind for one in found)
    try:
        send(address, "POST", "/admin/v2/magnetar/audit", json.dumps({"findings": counts}).encode())
    except CommandError as error:
        # The audit is done all the same: a stopped cluster has no broker, and Apache's has no such route.
        print(f"no broker shows this in its metrics: {error}", file=sys.stderr)


def _summary(found: list[AuditFinding], unreadable: int, *, changed: bool) -> str:
    counts = Counter(one.kind for one in found)
    text = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "no findings"
    rest = f"; {unreadable} nodes could not be read and were not judged" if unreadable else ""
    return f"{text}{rest}" + ("" if changed else "; nothing was changed")


async def _open(url: str) -> MetadataStore:
    """Opens a store to write. Raises MetadataError, also for a file that does not exist."""
    from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
    from foundation.zookeeper.url import parse_store_url

    zookeeper = parse_store_url(url)
    if zookeeper is None:
        return SqliteMetadataStore(_existing(url))
    from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore

    return await ZookeeperMetadataStore.open(zookeeper, session_timeout_s=30.0, timeout_s=30.0)


def _existing(url: str) -> Path:
    path = Path(url.removeprefix("file:"))
    # SQLite would make an empty file where there is none.
    if not path.is_file():
        raise MetadataError(f"{path}: there is no such metadata store")
    return path


def _time(ms: object) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000)) if isinstance(ms, int) else "?"
