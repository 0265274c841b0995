"""One round: traffic, kill, restart, look at everything; and the look repeated later.

Law of the place: the broker runs before and after; client processes live no longer than their round.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pulsar

from tests.crash import delay_process
from tests.crash.ack_process import delivery_of, records_path, subscribe
from tests.crash.broker_process import ROOT, BrokerProcess
from tests.crash.keyed_process import judge_compaction
from tests.crash.plan import RoundPlan, SubscriptionPlan
from tests.crash.records import (
    Came,
    Confirmed,
    Delivery,
    Message,
    read_acking,
    read_came,
    read_confirmed,
    read_entries,
    read_moves,
)
from tests.crash.schema_process import confirmed_versions, judge_schemas
from tests.crash.txn_process import KEEPER
from tests.crash.verdict import (
    PLAIN,
    AckVerdict,
    DelayVerdict,
    Demand,
    MoveVerdict,
    ProduceVerdict,
    acks_final_ns,
    demand_cumulative,
    demand_individual,
    demand_receipts,
    demand_whole_entries,
    judge_acks,
    judge_delays,
    judge_moves,
    judge_producer,
)

QUIET_MS = 1000
"""A subscription that has sent all that is wanted and nothing more for this long has sent all it has."""
WANTED_TIMEOUT_S = 300.0
FINISH_TIMEOUT_S = 300.0


class Outcome(NamedTuple):
    produced: list[ProduceVerdict]
    acked: list[AckVerdict]
    schemas: int
    """Versions of schemas that were confirmed."""
    delayed: DelayVerdict
    moves: MoveVerdict
    keyed: int
    """Confirmed messages of the topic that is compacted."""
    findings: list[str]

    def text(self) -> str:
        confirmed = sum(each.confirmed for each in self.produced)
        resent = sum(each.resent for each in self.produced)
        final = sum(each.final for each in self.acked)
        unacked = sum(each.unacked for each in self.acked)
        return (
            f"{confirmed} confirmed, {resent} resent, {final} acks final, {unacked} unacked back, "
            f"{self.schemas} schemas, "
            f"{self.delayed.confirmed} delayed, "
            f"{self.moves.committed} transactions committed, {self.moves.given_up} given up, {self.keyed} keyed, "
            f"{'ok' if not self.findings else 'FAILED'}"
        )


class CrashRound:
    """`run`, then `judge` as often as one likes while the broker is up."""

    def __init__(self, plan: RoundPlan, broker: BrokerProcess, folder: Path) -> None:
        self.plan = plan
        self._broker = broker
        self._folder = folder / f"round-{plan.number}"
        self._folder.mkdir()
        self._schema_topic = f"persistent://public/default/crash-{plan.number}-schemas"
        self._schema_records = str(self._folder / "schemas")
        self._kill_ns = 0
        self.recovery_s = 0.0
        self._findings: list[str] = []

    def run(self) -> None:
        """Traffic until the kill, the restart, and the producers' last receipts."""
        clients: list[subprocess.Popen[str]] = []
        try:
            ackers = [self._client(clients, "ack_process", str(self._folder))]
            ackers += [
                self._client(
                    clients, "receipt_process", each.topic, each.name, self._records(each), plan=False
                )
                for each in self.plan.subscriptions()
                if each.style == "receipts"
            ]
            ackers.append(
                self._client(clients, "schema_process", self._schema_topic, self._schema_records, plan=False)
            )
            ackers += self._transactions_and_keys(clients)
            producers = [
                self._client(clients, "produce_process", str(self._folder / "confirmed")),
                self._client(
                    clients,
                    "delay_process",
                    self.plan.delayed_topic(),
                    str(self.plan.rate),
                    str(self._folder / "delayed"),
                    plan=False,
                ),
            ]
            time.sleep(self.plan.kill_after_s)
            self._kill(ackers, producers)
            self._restart()
            if not self.plan.producers_die_too:
                for each in producers:
                    self._finish(each)
        finally:
            for client in clients:
                client.kill()
                client.communicate()

    def _transactions_and_keys(self, clients: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
        source, target = self.plan.transaction_topics()
        topic, records = self.plan.compacted_topic(), str(self._folder / "keyed")
        moves = str(self._folder / "moves")
        return [
            self._client(clients, "txn_process", source, target, moves, plan=False),
            self._client(clients, "keyed_process", topic, records, self._broker.admin_url, plan=False),
        ]

    def judge(self) -> Outcome:
        """Reads every topic and subscription, acknowledges nothing, and compares with the records."""
        client = pulsar.Client(
            self._broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        )
        try:
            confirmed = read_confirmed(self._folder / "confirmed")
            logs = self._logs(client, confirmed)
            produced = [
                judge_producer(each.name, confirmed, logs[each.topic], self._kill_ns)
                for each in self.plan.producers()
            ]
            plans = [each for each in self.plan.subscriptions() if each.style != "none"]
            with ThreadPoolExecutor(len(plans)) as pool:
                acked = list(pool.map(lambda each: self._judge_acks(client, each, logs[each.topic]), plans))
            schemas = confirmed_versions(self._schema_records)
            wrong_schemas = judge_schemas(client, self._schema_topic, schemas)
            delayed = self._judge_delays(client)
            moves = self._judge_moves(client)
            keyed = {each.number for each in read_confirmed(self._folder / "keyed")}
            topic = self.plan.compacted_topic()
            wrong_keys = judge_compaction(client, topic, self._broker.admin_url, keyed)
        finally:
            client.close()
        findings = self._findings + wrong_schemas + [text for each in produced for text in each.findings]
        findings += [text for each in acked for text in each.findings]
        findings += delayed.findings + moves.findings + wrong_keys
        return Outcome(produced, acked, len(schemas), delayed, moves, len(keyed), findings)

    def _judge_moves(self, client: pulsar.Client) -> MoveVerdict:
        """Waits for the time-outs of transactions that were open, then reads source and target."""
        url = f"{self._broker.admin_url}/admin/v3/transactions/slowTransactions/0"
        deadline = time.monotonic() + WANTED_TIMEOUT_S
        while json.loads(urllib.request.urlopen(url, timeout=60).read()):
            if time.monotonic() > deadline:
                return MoveVerdict(0, 0, ["transactions: some are open behind their time-outs"])
            time.sleep(0.05)
        moves = read_moves(self._folder / "moves")
        source, target = self.plan.transaction_topics()
        plain = {Message(PLAIN, number) for number in moves.plain}
        found = read_all(client, SubscriptionPlan(KEEPER, target, "none", "Exclusive", 1), plain)
        back = read_all(client, SubscriptionPlan("s", source, "none", "Shared", 1), set())
        return judge_moves(moves, [each.message for each in found], {each.message.number for each in back})

    def _judge_delays(self, client: pulsar.Client) -> DelayVerdict:
        """Waits for the delayed messages that did not come while their consumer lived."""
        confirmed = {each.number for each in read_confirmed(self._folder / "delayed")}
        came = read_came(self._folder / "delayed")
        missing = confirmed - {each.number for each in came}
        consumer = delay_process.subscribe(client, self.plan.delayed_topic())
        deadline = time.monotonic() + WANTED_TIMEOUT_S
        try:
            while missing and time.monotonic() < deadline:
                with contextlib.suppress(pulsar.Timeout):
                    message = consumer.receive(QUIET_MS)
                    at_ms = delay_process.wall_ms()
                    came.append(Came(*delay_process.message_of(message.data()), at_ms))
                    missing.discard(came[-1].number)
        finally:
            consumer.close()
        return judge_delays(confirmed, came)

    def _logs(self, client: pulsar.Client, confirmed: list[Confirmed]) -> dict[str, list[Delivery]]:
        """By topic, what its keeper reads: everything, in order."""
        plans = [each for each in self.plan.subscriptions() if each.style == "none"]
        wanted = []
        for plan in plans:
            names = {each.name for each in self.plan.producers() if each.topic == plan.topic}
            wanted.append(
                {Message(each.producer, each.number) for each in confirmed if each.producer in names}
            )
        with ThreadPoolExecutor(len(plans)) as pool:
            read = list(pool.map(lambda plan, want: read_all(client, plan, want), plans, wanted))
        return {plan.topic: log for plan, log in zip(plans, read, strict=True)}

    def _judge_acks(self, client: pulsar.Client, plan: SubscriptionPlan, log: list[Delivery]) -> AckVerdict:
        demand = self._demand(plan, log)
        back = read_all(client, plan, demand.unacked)
        return judge_acks(f"{plan.topic.rsplit('/', 1)[1]}/{plan.name}", demand, set(back))

    def _demand(self, plan: SubscriptionPlan, log: list[Delivery]) -> Demand:
        records = Path(self._records(plan))
        if plan.style == "receipts":
            answered, tried = (read_entries(records, kind) for kind in ("entry-acked", "entry-acking"))
            return demand_receipts(answered, tried, log)
        demands = {
            "individual": demand_individual,
            "whole-entries": demand_whole_entries,
            "cumulative": demand_cumulative,
        }
        acked = read_acking(records)
        receipts = (each.at_ns for each in read_confirmed(self._folder / "confirmed"))
        final_ns = acks_final_ns(self._kill_ns, receipts, (each.at_ns for each in acked))
        return demands[plan.style](acked, final_ns, log)

    def _kill(self, ackers: list[subprocess.Popen[str]], producers: list[subprocess.Popen[str]]) -> None:
        self._kill_ns = time.monotonic_ns()
        self._broker.kill()
        for client in ackers:
            client.kill()
        if self.plan.producers_die_too:
            for client in producers:
                client.kill()

    def _restart(self) -> None:
        if self.plan.kill_again_after_s is not None:
            self._broker.spawn()
            time.sleep(self.plan.kill_again_after_s)
            self._broker.kill()
        self.recovery_s = self._broker.start()

    def _finish(self, producers: subprocess.Popen[str]) -> None:
        """The surviving producers reconnect, send again what had no receipt, and wait for all receipts."""
        with ThreadPoolExecutor(1) as waiting:
            answer = waiting.submit(_tell_stop, producers)
            try:
                if answer.result(FINISH_TIMEOUT_S) != "done":
                    self._findings.append("the producers ended without their last receipts")
            except TimeoutError:
                self._findings.append(f"receipts still missing {FINISH_TIMEOUT_S:.0f} s after the restart")
                producers.kill()

    def _records(self, plan: SubscriptionPlan) -> str:
        return str(records_path(self._folder, plan))

    def _client(
        self, started: list[subprocess.Popen[str]], module: str, *words: str, plan: bool = True
    ) -> subprocess.Popen[str]:
        """Starts a client process and waits until it says that it is ready."""
        said = [json.dumps(self.plan), *words] if plan else list(words)
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.crash.{module}", self._broker.url, *said],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{module} could not start; the broker says: {self._broker.log_end()}")
        return process


def read_all(
    client: pulsar.Client, plan: SubscriptionPlan, wanted: Set[Message] | Set[Delivery]
) -> list[Delivery]:
    """Returns the messages of a subscription in the order in which they come, and acknowledges none.

    Waits for all that is wanted up to a limit, then on until no more comes.
    """
    consumer = subscribe(client, plan)
    missing: set[Message | Delivery] = set(wanted)
    deliveries: list[Delivery] = []
    deadline = time.monotonic() + WANTED_TIMEOUT_S
    try:
        while True:
            try:
                delivery = delivery_of(consumer.receive(QUIET_MS))
            except pulsar.Timeout:
                if not missing or time.monotonic() > deadline:
                    return deliveries
                continue
            deliveries.append(delivery)
            missing -= {delivery, delivery.message}
    finally:
        consumer.close()


def _tell_stop(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("stop\n")
    process.stdin.flush()
    return process.stdout.readline().strip()
