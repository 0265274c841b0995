"""Producers with one new schema after the other: `python -m tests.crash.schema_process URL TOPIC RECORDS`.

Says `ready`, then adds versions until it is killed, and records each one once the broker has confirmed it. Version N has
the optional field `fN`, so each fits the others.
"""

from __future__ import annotations

import itertools
import json
import os
import sys

import pulsar
from pulsar.schema import AvroSchema


def definition(version: int) -> dict[str, object]:
    """Returns the definition that a topic's version of this number has."""
    fields = [{"name": f"f{version}", "type": ["null", "int"], "default": None}]
    return {"type": "record", "name": "A", "fields": fields}


def confirmed_versions(path: str) -> list[int]:
    """Returns the versions that a process has recorded."""
    with open(path, encoding="utf-8") as file:
        return [int(line) for line in file]


def judge_schemas(client: pulsar.Client, topic: str, confirmed: list[int]) -> list[str]:
    """Returns a sentence for each confirmed version that the broker no longer has as it was."""
    findings = []
    for version in confirmed:
        try:
            # The client's own way for messages of another version; it has no public name.
            found = json.loads(client._client.get_schema_info(topic, version).schema())
        except pulsar.PulsarException as error:
            findings.append(f"version {version} of {topic} was confirmed and is lost: {error}")
            continue
        if found != definition(version):
            findings.append(f"version {version} of {topic} is another one: {found}")
    return findings


def main(url: str, topic: str, records: str) -> None:
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    file = os.open(records, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    print("ready", flush=True)
    for version in itertools.count():
        producer = client.create_producer(
            topic, schema=AvroSchema(None, schema_definition=definition(version))
        )
        os.write(file, b"%d\n" % version)
        producer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
