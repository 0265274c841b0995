"""Commands that need more than one plain request. Each function is named in the last column of `commands.tsv`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from foundation.value import Json
from magnetar.admin.messages import peeked, texts_of
from magnetar.admin.output import shown
from magnetar.admin.requests import body_of, path_of
from magnetar.admin.table import Command, commands
from magnetar.admin.values import TOPIC_DOMAINS, topic_path
from magnetar.clients.admin_client import AdminAddress, Response, send, text_or_json
from magnetar.clients.client import CommandError

POLL_S: Final = 1.0
"""Pause between two checks of a process that still runs, as in pulsar-admin."""
SHADOW_SOURCE: Final = "PULSAR.SHADOW_SOURCE"
"""The property of a shadow topic that names its source."""
_SEPARATOR: Final = "-" * 73 + "\n"


class Call(NamedTuple):
    """One command with its values."""

    command: Command
    """The row of the table."""
    values: dict[str, Json]
    """Values by the names of the row."""
    address: AdminAddress
    """The broker to ask."""
    output: str
    """`json`, `table`, or empty for pulsar-admin's form."""

    def ask(self) -> Response:
        """Sends the request of the row."""
        body = body_of(self.command.body, self.values)
        path = path_of(self.command.path, self.values)
        return send(self.address, self.command.method, path, *(body or ()))

    def get(self, path: str) -> Json:
        """Returns the JSON of another request."""
        return text_or_json(send(self.address, "GET", path).text)

    def print(self, value: Json) -> None:
        """Prints a value in the form that was asked for."""
        print(shown(value, self.output))


def list_both(call: Call) -> int:
    """Lists the topics of both kinds unless one is asked for, as pulsar-admin does."""
    kind = call.values["topic-domain"]
    found: list[Json] = []
    for domain in TOPIC_DOMAINS if kind is None else [str(kind)]:
        topics = call.get(path_of(call.command.path, {**call.values, "topic-domain": domain}))
        found += topics if isinstance(topics, list) else []
    if found or call.output:
        call.print(found)
    return 0


def messages(call: Call) -> int:
    """Prints the messages of one entry."""
    print("\n".join(texts_of(call.ask())).rstrip("\n"))
    return 0


def peek(call: Call) -> int:
    """Prints the messages of the first entries of a backlog."""
    texts: list[str] = []
    count = call.values["count"]
    assert isinstance(count, int)
    for number in range(1, count + 1):
        try:
            answer = send(call.address, "GET", path_of(call.command.path, {**call.values, "number": number}))
        except CommandError:
            # The backlog is shorter.
            if not texts:
                raise
            break
        if peeked(answer, call.values):
            texts += texts_of(answer)
    print((_SEPARATOR + "\n").join(texts).rstrip("\n"))
    return 0


def raw(call: Call) -> int:
    """Prints the answer as it came, or with line breaks after `--indent`."""
    text = call.ask().text
    indented = call.values["indent"] and not call.output
    print(shown(text_or_json(text), call.output) if call.output or indented else text)
    return 0


def wait(call: Call) -> int:
    """Prints the state of a process; `--wait-complete` waits for its end. Returns 1 after an error."""
    while True:
        state = text_or_json(call.ask().text)
        status = state.get("status") if isinstance(state, dict) else None
        if status != "RUNNING" or not call.values["wait-complete"]:
            break
        time.sleep(POLL_S)
    call.print(state)
    return 1 if status == "ERROR" else 0


def watch(call: Call) -> int:
    """Prints the state of a key; `--watch` repeats this each second, until Ctrl-C."""
    while True:
        call.print(text_or_json(call.ask().text))
        if not call.values["watch"]:
            return 0
        time.sleep(POLL_S)


def download(call: Call) -> int:
    """Writes the answer into a file."""
    names = ("destination-file", "destinationFile") if call.command.group == "functions" else ("path",)
    given = next((call.values[name] for name in names if call.values.get(name) is not None), None)
    if given is None:
        raise CommandError("a file is missing; name it with --destination-file")
    content = call.ask().content
    try:
        Path(str(given)).write_bytes(content)
    except OSError as error:
        raise CommandError(f"the file {given} cannot be written: {error.strerror}") from None
    return 0


def lookup_partitions(call: Call) -> int:
    """Prints the broker of each partition, or the partitions of each broker."""
    topic = topic_path(str(call.values["topicName"]))
    metadata = call.get(f"/admin/v2/{topic}/partitions")
    count = metadata.get("partitions") if isinstance(metadata, dict) else None
    if not isinstance(count, int) or count < 1:
        raise CommandError(f"{call.values['topicName']} has no partitions")
    domain, _, rest = topic.partition("/")
    brokers: dict[str, str] = {}
    for number in range(count):
        found = call.get(f"/lookup/v2/topic/{topic}-partition-{number}")
        url = found.get("brokerUrl") if isinstance(found, dict) else None
        brokers[f"{domain}://{rest}-partition-{number}"] = str(url)
    if not call.values["sort-by-broker"]:
        _print_pairs(call, brokers)
        return 0
    by_broker: dict[str, list[str]] = {}
    for name, url in brokers.items():
        by_broker.setdefault(url, []).append(name)
    _print_pairs(call, {url: f"[{', '.join(names)}]" for url, names in by_broker.items()})
    return 0


def _print_pairs(call: Call, pairs: Mapping[str, str]) -> None:
    if call.output:
        call.print(dict(pairs))
    else:
        print("\n".join(f"{name}    {value}" for name, value in pairs.items()))


def offload(call: Call) -> int:
    """Offloads the oldest ledgers, so that those left have at most `--size-threshold` bytes."""
    topic, limit = topic_path(str(call.values["topicName"])), call.values["size-threshold"]
    stats = call.get(f"/admin/v2/{topic}/internalStats")
    assert isinstance(stats, dict)
    assert isinstance(limit, int)
    ledger_id = _first_kept(stats, limit)
    if ledger_id is None:
        print("Nothing to offload")
        return 0
    place: Json = {"ledgerId": ledger_id, "entryId": 0, "partitionIndex": -1}
    body = body_of(call.command.body, {"messageId": place})
    send(call.address, call.command.method, path_of(call.command.path, call.values), *(body or ()))
    print(f"Offload triggered for {call.values['topicName']} for messages before {ledger_id}:0")
    return 0


def _first_kept(stats: Mapping[str, Json], limit: int) -> Json:
    """Returns the first ledger that stays; None when all ledgers have at most `limit` bytes together."""
    ledgers = stats["ledgers"]
    assert isinstance(ledgers, list)
    kept, size = None, 0
    for ledger in reversed(ledgers):
        assert isinstance(ledger, dict)
        # The current ledger shows no size of its own.
        given = stats["currentLedgerSize"] if ledger is ledgers[-1] else ledger["size"]
        assert isinstance(given, int)
        size += given
        if size > limit:
            return kept
        kept = ledger["ledgerId"]
    return None


def create_shadow_topic(call: Call) -> int:
    """Creates a topic with the source's number of partitions and a property that names the source."""
    source = str(call.values["source"])
    metadata = call.get(f"/admin/v2/{topic_path(source)}/partitions")
    count = metadata.get("partitions") if isinstance(metadata, dict) else 0
    given = call.values["properties"]
    properties: dict[str, Json] = {**given} if isinstance(given, dict) else {}
    properties[SHADOW_SOURCE] = topic_path(source).replace("/", "://", 1)
    call.values["properties"], call.values["partitions"] = properties, count or None
    return plain(call)


def deploy(call: Call) -> int:
    """Creates or updates a function, source or sink; its name may come from `--fqfn` or from the file of settings."""
    values = call.values
    file = next(
        (one for name, one in values.items() if name.lower().replace("-", "").endswith("configfile")), {}
    )
    config = file if isinstance(file, dict) else {}
    if values.get("fqfn") is not None:
        whole = dict(zip(("tenant", "namespace", "name"), str(values["fqfn"]).split("/"), strict=False))
        config = {**config, **whole}
    defaults: dict[str, Json] = {"tenant": "public", "namespace": "default"}
    for name in ("tenant", "namespace", "name"):
        if values[name] is None:
            values[name] = config.get(name, defaults.get(name))
    for name in ("jar", "py", "go", "archive"):
        if name in values and values[name] is None:
            values[name] = config.get(name)
    for kind, place in (("function-type", "jar"), ("sink-type", "archive"), ("source-type", "archive")):
        if values.get(kind) is not None:
            values[place] = f"builtin://{values[kind]}"
    values["fqfn"] = None
    return plain(call)


def put_state(call: Call) -> int:
    """Stores the state of the key that the JSON of `--state` names."""
    state = call.values["state"]
    if not isinstance(state, dict) or not state.get("key"):
        raise CommandError("--state: a JSON object with the member key is expected")
    call.values["key"] = state["key"]
    return plain(call)


def plain(call: Call) -> int:
    """Sends the request and prints the answer, if there is one."""
    answer = call.ask()
    if answer.content:
        call.print(text_or_json(answer.text))
    return 0


def offload_thresholds(call: Call) -> int:
    """Prints both thresholds from which on ledgers are offloaded."""
    path = path_of(call.command.path, call.values)
    size, seconds = call.get(path), call.get(f"{path}InSeconds")
    if call.output:
        call.print({"offloadThresholdInBytes": size, "offloadThresholdInSeconds": seconds})
    else:
        print(f"offloadThresholdInBytes: {size}\noffloadThresholdInSeconds: {seconds}")
    return 0


def set_offload_thresholds(call: Call) -> int:
    """Sets both thresholds from which on ledgers are offloaded."""
    call.ask()
    path = path_of(call.command.path, call.values)
    send(call.address, "PUT", f"{path}InSeconds", str(call.values["time"]).encode())
    return 0


def clusters(call: Call) -> int:
    """Lists the clusters; `--current` marks that of the broker."""
    found = text_or_json(call.ask().text)
    if call.values["current"] and isinstance(found, list):
        settings = call.get("/admin/v2/brokers/configuration/runtime")
        current = settings.get("clusterName") if isinstance(settings, dict) else None
        found = [f"{one}(*)" if one == current else one for one in found]
    call.print(found)
    return 0


def delete_topics(call: Call) -> int:
    """Deletes one topic, those of a file (`--from-file`), or those that match a pattern (`-r`)."""
    names: Iterable[str] = [str(call.values["topic"])]
    if call.values["from-file"]:
        try:
            lines = Path(str(call.values["topic"])).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise CommandError(f"the file of topics cannot be read: {error}") from None
        names = [line.strip() for line in lines if line.strip()]
    elif call.values["r"]:
        names = _matching(call)
    for name in names:
        path = path_of(call.command.path, {**call.values, "topic": name})
        send(call.address, call.command.method, path)
    return 0


def _matching(call: Call) -> list[str]:
    whole = str(call.values["topic"])
    domain, found, rest = whole.partition("://")
    parts = (rest if found else domain).split("/", 2)
    if len(parts) != 3:
        raise CommandError(f"{whole!r} is no pattern; allowed is persistent://TENANT/NAMESPACE/PATTERN")
    domain = domain if found else TOPIC_DOMAINS[0]
    try:
        pattern = re.compile(f"{re.escape(f'{domain}://{parts[0]}/{parts[1]}/')}(?:{parts[2]})")
    except re.error as error:
        raise CommandError(f"{parts[2]!r} is no pattern: {error}") from None
    topics = call.get(path_of(f"/admin/v2/{domain}/{{namespace}}", {"namespace": "/".join(parts[:2])}))
    return [str(one) for one in topics if pattern.fullmatch(str(one))] if isinstance(topics, list) else []


def documents(call: Call) -> int:
    """Prints the commands of groups as Markdown; all groups without a name."""
    named = call.values["modules"]
    wanted = str(named).split(",") if named else list(commands())
    for name in wanted:
        if name not in commands():
            raise CommandError(f"{name!r} is no group; allowed are {', '.join(commands())}")
        print(f"# {name}\n")
        for command in commands()[name].values():
            words = [f"<{argument}>" for argument in command.arguments]
            words += [f"[{'|'.join(option.flags)}]" for option in command.options]
            print(f"* `magnetar admin {' '.join([name, command.name, *words])}`")
        print()
    return 0


HANDLERS: Final[Mapping[str, Callable[[Call], int]]] = {
    "list_both": list_both,
    "messages": messages,
    "peek": peek,
    "raw": raw,
    "wait": wait,
    "watch": watch,
    "download": download,
    "lookup_partitions": lookup_partitions,
    "offload": offload,
    "create_shadow_topic": create_shadow_topic,
    "clusters": clusters,
    "deploy": deploy,
    "put_state": put_state,
    "offload_thresholds": offload_thresholds,
    "set_offload_thresholds": set_offload_thresholds,
    "delete_topics": delete_topics,
    "documents": documents,
}
"""By its name in `commands.tsv`: runs the command and returns the exit code."""
