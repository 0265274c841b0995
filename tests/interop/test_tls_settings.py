"""TLS settings as an operator writes them: wrong ones stop the start with one line, those of the how-to page serve."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.interop.support import connect, numbered, publish
from tests.interop.test_tls import tls_settings
from tests.support.certificates import Certificates
from tests.vectors.broker_process import REPOSITORY, BrokerProcess


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tlsKeyFilePath": "authority.key"}, "the key does not belong to the certificate"),
        ({"tlsKeyFilePath": "locked.key"}, "store it without a password"),
        ({"tlsKeyFilePath": ""}, "needs a PEM file in tlsKeyFilePath"),
        ({"tlsCertificateFilePath": "/there/is/none"}, "/there/is/none: No such file or directory"),
        ({"tlsCertificateFilePath": "authority.key"}, "-----BEGIN"),
        ({"tlsTrustCertsFilePath": "/there/is/none"}, "/there/is/none"),
        ({"tlsCiphers": "TLS_NO_WITH_SUCH"}, "NO-SUCH is no cipher"),
        ({"tlsProtocols": "TLSv1.1"}, "tlsProtocols=TLSv1.1"),
        (
            {"tlsRequireTrustedClientCertOnConnect": "true", "tlsAllowInsecureConnection": "true"},
            "excludes tlsAllowInsecureConnection=true",
        ),
        (
            {"tlsRequireTrustedClientCertOnConnect": "true", "tlsTrustCertsFilePath": ""},
            "needs the certificates that vouch for clients",
        ),
        ({"tlsEnabledWithKeyStore": "true"}, "asks for TLS from Java key stores"),
        ({"brokerServicePortTls": "", "webServicePortTls": ""}, "asks for TLS, and no port has it"),
        (
            {"brokerServicePort": "", "brokerServicePortTls": ""},
            "brokerServicePort and brokerServicePortTls are both empty",
        ),
    ],
)
def test_start_stops_with_one_line_when_tls_settings_cannot_be_used(
    certificates: Certificates, changes: Mapping[str, str], said: str
) -> None:
    certificates.locked_key("swordfish")
    settings = {**tls_settings(certificates), "brokerServicePort": "0", "webServicePort": "0", **changes}
    for name, value in changes.items():
        if value.endswith(".key"):
            settings[name] = str(certificates.authority.parent / value)
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    ended = subprocess.run(
        [sys.executable, "-m", "magnetar", "standalone", "--memory", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_commands_and_settings_of_the_page_make_a_broker_with_tls(tmp_path: Path, topic: str) -> None:
    page = (REPOSITORY / "docs/how-to/tls.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    subprocess.run(["sh", "-e", "-c", script], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    blocks = re.findall(r"^```properties\n(.*?)^```", page, re.M | re.S)
    lines = [line.partition("=") for block in blocks for line in block.splitlines()]
    settings = {
        name: str(tmp_path / value) if value.endswith((".pem", ".key")) else value for name, _, value in lines
    }
    assert len(settings) == len(lines), "a key stands twice on the page"
    # The page's bookie with TLS is an example; the one inside the broker needs none.
    free = {"brokerServicePortTls": "0", "webServicePortTls": "0", "bookieAddress": "embedded"}
    (tmp_path / "broker").mkdir()
    with BrokerProcess(tmp_path / "broker", {**settings, **free}, memory=True) as broker:
        trusted = {
            "tls_trust_certs_file_path": str(tmp_path / "authority.pem"),
            "tls_validate_hostname": True,
        }
        for url in (broker.addresses.pulsar_tls, broker.addresses.admin_tls):
            client = connect(url, **trusted)
            publish(client.create_producer(topic), numbered(3))
            client.close()
