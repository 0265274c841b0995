"""`python -m tests.crash --rounds 20`: one line per round, a summary, exit code 1 when anything is wrong."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.crash import (
    bookie_run,
    compaction_run,
    deletion_run,
    dormancy_run,
    full_disk_run,
    holes_run,
    offload_run,
    quarantine_run,
    trimming_run,
)
from tests.crash.broker_process import BrokerError, BrokerProcess
from tests.crash.counting_broker import counted
from tests.crash.crash_round import CrashRound, Outcome
from tests.crash.plan import draw
from tests.crash.spark_audit import audit_all, snapshot

STEPS: Final = {
    "deletion": deletion_run.main,
    "compaction": compaction_run.main,
    "quarantine": quarantine_run.main,
    "trimming": trimming_run.main,
    "offload": offload_run.main,
    "dormancy": dormancy_run.main,
}
"""By the option, the runs that try each step of an operation."""


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    if arguments.bookie:
        return bookie_run.main(arguments.seed, keep=arguments.keep)
    for name, try_all in STEPS.items():
        if vars(arguments)[name]:
            return try_all(keep=arguments.keep, audit=arguments.audit)
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    print(f"seed {seed}, {folder}", flush=True)
    passed = False
    try:
        if arguments.holes:
            passed = holes_run.main(arguments.rounds, seed, folder)
        elif arguments.full_disk:
            class_path = arguments.java_class_path
            passed = full_disk_run.main(arguments.rounds, seed, folder, java_class_path=class_path)
        else:
            passed = run(arguments.rounds, seed, folder)
    except (BrokerError, RuntimeError) as error:
        print(f"FAILED: {error}")
    if arguments.audit:
        taken = snapshot(folder / "data" / "metadata.sqlite", folder / "snapshot")
        passed = audit_all({"all rounds": taken}) == 0 and passed
    if passed and not arguments.keep:
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}")
    return 0 if passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.crash", description="kill -9 under load, over and over")
    parser.add_argument("--rounds", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, default=None, help="same seed, same draws (times still vary)")
    parser.add_argument(
        "--bookie", action="store_true", help="kill a bookie at each of its named points instead"
    )
    parser.add_argument(
        "--compaction", action="store_true", help="kill a broker at each step of a topic compaction instead"
    )
    parser.add_argument(
        "--deletion", action="store_true", help="kill a broker at each step of deletions instead"
    )
    parser.add_argument(
        "--trimming", action="store_true", help="kill a broker at each step of expiry and trimming instead"
    )
    parser.add_argument(
        "--offload",
        action="store_true",
        help="kill a broker at each step of an offload and of its removal instead",
    )
    parser.add_argument(
        "--dormancy",
        action="store_true",
        help="kill a broker at each step of falling asleep and waking instead",
    )
    parser.add_argument(
        "--holes",
        action="store_true",
        help="kill a broker while entries that are pending at consumers are delivered again instead",
    )
    parser.add_argument(
        "--quarantine",
        action="store_true",
        help="kill an operator or the broker at each step of a quarantine instead",
    )
    parser.add_argument(
        "--full-disk",
        action="store_true",
        help="kill a broker around the moment its disk is full instead; as root",
    )
    parser.add_argument(
        "--java-class-path", default="", help="with --full-disk: the Java client, for every third producer"
    )
    parser.add_argument(
        "--audit", action="store_true", help="let the audits on Spark look at the metadata store in the end"
    )
    parser.add_argument("--keep", action="store_true", help="keep data, records and the broker's log")
    return parser


def run(rounds: int, seed: int, folder: Path) -> bool:
    """All rounds on one data folder; at the end every round's topics once more. True when nothing is wrong."""
    lot = random.Random(seed)
    broker = BrokerProcess(folder, module="tests.crash.counting_broker")
    done: list[CrashRound] = []
    last: list[Outcome] = []
    failed = 0
    try:
        broker.start()
        for number in range(1, rounds + 1):
            crash = CrashRound(draw(number, lot), broker, folder)
            crash.run()
            failed += not _report(f"round {number:2d}  {_drawn(crash)}", crash.judge())
            done.append(crash)
        broker.kill()
        broker.start()
        for crash in done:
            last.append(crash.judge())
            if last[-1].findings:
                failed += not _report(f"round {crash.plan.number:2d} looked at again at the end", last[-1])
        code = broker.stop()
    finally:
        broker.close()
    if code != 0:
        print(f"FAILED: SIGTERM ended with exit code {code}")
    runs = counted(broker.runs)
    print(f"{summary(rounds, last)}, {runs} runs of several SENDs")
    if not runs:
        print("FAILED: no run had more than one SEND")
    return failed == 0 and code == 0 and runs > 0


def summary(rounds: int, outcomes: list[Outcome]) -> str:
    produced = [each for outcome in outcomes for each in outcome.produced]
    acked = [each for outcome in outcomes for each in outcome.acked]
    return (
        f"{rounds} rounds, {sum(each.confirmed for each in produced)} confirmed, "
        f"{sum(each.lost for each in produced)} lost, "
        f"{sum(each.out_of_order for each in produced)} out of order, "
        f"{sum(outcome.delayed.confirmed for outcome in outcomes)} delayed, "
        f"{sum(outcome.delayed.lost for outcome in outcomes)} of them lost, "
        f"{sum(outcome.delayed.early for outcome in outcomes)} early, "
        f"{sum(outcome.moves.committed for outcome in outcomes)} transactions committed, "
        f"{sum(outcome.moves.given_up for outcome in outcomes)} given up, "
        f"{sum(outcome.keyed for outcome in outcomes)} keyed, "
        f"{sum(each.again for each in acked)} acked again "
        f"(and {sum(each.doubled for each in produced)} doubled, {sum(each.final for each in acked)} acks final, "
        f"{sum(each.unacked for each in acked)} unacked of which {sum(each.missing for each in acked)} missing)"
    )


def _drawn(crash: CrashRound) -> str:
    plan = crash.plan
    again = f" again +{plan.kill_again_after_s:.2f} s" if plan.kill_again_after_s is not None else ""
    died = ", producers too" if plan.producers_die_too else ""
    return f"killed at {plan.kill_after_s:.2f} s{again}{died}, back in {crash.recovery_s:.2f} s"


def _report(what: str, outcome: Outcome) -> bool:
    print(f"{what}: {outcome.text()}", flush=True)
    for finding in outcome.findings:
        print(f"    {finding}", flush=True)
    return not outcome.findings


if __name__ == "__main__":
    sys.exit(main())
