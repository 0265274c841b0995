"""Compares the outputs of two brokers for one command. Pure.

Two outputs are the same when they differ only in addresses, times, numbers of ledgers, measured rates, and the order of
members and names. Everything else is a difference, and needs a reason in `reasons.tsv`,
or `cluster_reasons.tsv`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.pulsar_admin.session import Broker, Outcome
from foundation.value import Json

REASONS = Path(__file__).with_name("reasons.tsv")
CLUSTER_REASONS = Path(__file__).with_name("cluster_reasons.tsv")
SHOWN_DIFFERENCES = 3
"""Differences of one command that the table names."""
_MEASURED = re.compile(
    r"rate|throughput|time|since|age$|ledgerid|ledger$|latency|usage|address|uuid|averagemsgsize|bookieid"
    r"|producername|consumername|clientversion|lastledger|markdeleteposition|readposition|storeurl"
    r"|lastconfirmedentry|creationdate|modificationdate|storeservers|zookeeperservers|lastupdate",
    re.IGNORECASE,
)
"""Members whose values depend on the run: the comparison keeps only their presence."""
_LOG = re.compile(
    r"^(\S*(\d\d:\d\d:\d\d[.,]\d+|\d{4}-\d\d-\d\dT)|\w{3} \d+, \d{4} \d+:\d\d:\d\d [AP]M ).*$\n?",
    re.MULTILINE,
)
_RECORDS = re.compile(r"(\d+) records (sent|received)")
_ASKED = re.compile(r"--num-messages (\d+)")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|[+-]\d\d:?\d\d)?|\b1[6-9]\d{11}\b")
_MESSAGE_ID = re.compile(r"(?<![\d.:])\d+:(-?\d+)(:-?\d+)*(?![\d:])")
_WORDS = re.compile(r"\[[\w<>, ]+\]")
_REQUEST = re.compile(r'"reqId":\s*\d+.*$', re.MULTILINE)
"""The client's end of an error: numbers and addresses of its own."""
_END = re.compile(r"\s*Goodbye!\s*$")
"""The shell's last word."""
_STACK = re.compile(r"^\s+at .*$\n?|\n?\s*Stacktrace:[\s\S]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One command on two brokers."""

    command: str
    """The command as its file has it."""
    differences: tuple[str, ...]
    """A text for each difference; empty when the outputs are the same."""
    reason: str
    """The reason for the differences, empty without one."""
    works: bool
    """True unless this broker refused the command."""


def compared(
    here: Sequence[Outcome], there: Sequence[Outcome], brokers: tuple[Broker, Broker]
) -> list[Comparison]:
    """Returns a row for each command; both sessions have the same commands."""
    known = reasons(REASONS if brokers[0].other is None else CLUSTER_REASONS)
    rows = []
    for one, other in zip(here, there, strict=True):
        found = tuple(differences(one, other, brokers))
        reason = next((text for pattern, text in known if found and pattern.search(one.command)), "")
        rows.append(Comparison(one.command, found, reason, one.works))
    return rows


def differences(here: Outcome, there: Outcome, brokers: tuple[Broker, Broker]) -> list[str]:
    """Returns a text for each difference; empty when the outputs are the same."""
    if here.command.startswith("perf "):
        return [] if _records(here) == _records(there) else [f"{_records(here)}, there {_records(there)}"]
    first, second = (_plain(one.output, broker) for one, broker in zip((here, there), brokers, strict=True))
    values = _json(first), _json(second)
    if None not in values:
        return list(_unlike(values[0], values[1], ""))
    lines = _lines(first), _lines(second)
    if lines[0] == lines[1]:
        return []
    only = ([line for line in lines[side] if line not in lines[1 - side]] for side in (0, 1))
    first_only, second_only = map(_short, only)
    return [f"`{first_only}`, there `{second_only}`"]


def reasons(path: Path) -> list[tuple[re.Pattern[str], str]]:
    """Reads the known reasons: a pattern for the command, and why the outputs differ."""
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    return [(re.compile(pattern), reason) for pattern, reason in rows]


def _records(outcome: Outcome) -> str:
    # pulsar-perf ends a moment after the number that it was asked for.
    found, asked = _RECORDS.findall(outcome.output), _ASKED.search(outcome.command)
    if not found or asked is None:
        return "no records"
    count, word = found[-1]
    few = int(count) < int(asked[1])
    return f"{count if few else f'{asked[1]} or more'} records {word}"


def _plain(text: str, broker: Broker) -> str:
    """Replaces the addresses of the brokers; removes log lines and stack traces."""
    for name, one in broker.members.items():
        ports = "|".join(url.rstrip("/").rpartition(":")[2] for url in (one.admin_url, one.pulsar_url))
        text = re.sub(rf"((http|pulsar)://)?[\w.-]+:({ports})\b(/(?=[\"\s]|$))?", f"<{name}>", text)
    text = _WORDS.sub(lambda found: f"[{', '.join(sorted(found[0][1:-1].split(', ')))}]", text)
    text = _REQUEST.sub("", text)
    text = _END.sub("", _STACK.sub("", _LOG.sub("", text)))
    # JSON within a line, such as that of a refusal, has no form of its own.
    return text.replace('": ', '":').strip()


def _json(text: str) -> Json:
    """Returns the JSON of an output, None for another text."""
    try:
        value: Json = json.loads(text)
    except ValueError:
        return None
    return value


def _lines(text: str) -> list[str]:
    text = _MESSAGE_ID.sub(r"<ledger>:\1", _TIME.sub("<time>", text))
    return sorted(line.strip() for line in text.splitlines() if line.strip())


def _unlike(first: Json, second: Json, path: str) -> Iterator[str]:
    if isinstance(first, dict) and isinstance(second, dict):
        for name in sorted(first.keys() | second.keys()):
            inner = f"{path}.{name}".lstrip(".")
            if name not in first or name not in second:
                yield f"`{inner}` only {'there' if name in second else 'here'}"
            elif not _MEASURED.search(name):
                yield from _unlike(first[name], second[name], inner)
    elif isinstance(first, list) and isinstance(second, list):
        yield from _unlike_lists(first, second, path)
    elif isinstance(first, str) and isinstance(second, str):
        if _lines(first) != _lines(second):
            yield f"`{path or 'answer'}` {first[:40]!r}, there {second[:40]!r}"
    elif first != second:
        yield f"`{path or 'answer'}` {first!r}, there {second!r}"


def _unlike_lists(first: list[Json], second: list[Json], path: str) -> Iterator[str]:
    # Lists of names have no order in Pulsar.
    keys = [
        sorted(map(json.dumps, one)) if all(isinstance(x, str) for x in one) else one
        for one in (first, second)
    ]
    if len(first) != len(second):
        yield f"`{path or 'answer'}` has {len(first)} elements, there {len(second)}"
        return
    for number, (one, other) in enumerate(zip(*keys, strict=True)):
        yield from _unlike(one, other, f"{path}[{number}]")


def _short(lines: list[str]) -> str:
    text = " ".join(lines)
    return (text if len(text) <= 90 else text[:87] + "…").replace("|", "\\|").replace("`", "'") or "(nothing)"
