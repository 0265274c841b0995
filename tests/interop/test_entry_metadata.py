"""Fields of one's own in the broker entry metadata (PIP-70), from the entry point of an installed package to Java's client.

`java/OwnFields.java` reads the block where the official client takes it off the message.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.interop.programs import need, run
from tests.support.java import class_path
from tests.vectors.broker_process import REPOSITORY, BrokerProcess

JAVA: Final = Path(__file__).parent / "java"
PULSARS: Final = "org.apache.pulsar.common.intercept.Append{}MetadataInterceptor"
RUN_S: Final = 120

pytestmark = [pytest.mark.slow, pytest.mark.peer]


def test_java_client_reads_the_fields_of_an_installed_interceptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("javac")
    classes = tmp_path / "classes"
    path = f"{class_path(JAVA / 'pom.xml', tmp_path)}:{classes}"
    compiled = run(["javac", "-cp", path, "-d", str(classes), str(JAVA / "OwnFields.java")], RUN_S, tmp_path)
    assert compiled.returncode == 0, compiled.stderr
    packages = tmp_path / "packages"
    info = packages / "magnetar_region-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(REPOSITORY / "examples/entry_metadata/region.py", packages)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: magnetar-region\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[magnetar.broker_entry_metadata]\nregion = region:intercept\n")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setenv("REGION", "north-7")
    chosen = ",".join([*(PULSARS.format(one) for one in ("BrokerTimestamp", "Index")), "region"])
    settings = {
        "brokerEntryMetadataInterceptors": chosen,
        "exposingBrokerEntryMetadataToClientEnabled": "true",
    }
    with BrokerProcess(tmp_path, settings, memory=True) as broker:
        topic = "persistent://public/default/own-fields"
        command = ["java", "-cp", path, "org.apache.pulsar.client.impl.OwnFields"]
        ended = run([*command, broker.addresses.pulsar, topic], RUN_S, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines() == [
        f"{number} message-{number} true 100=north-7 101=public" for number in range(3)
    ]
