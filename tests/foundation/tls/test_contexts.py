"""Contexts made of files: what they refuse, protocols and ciphers that they restrict."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from foundation.tls.contexts import ClientFiles, ServerFiles, client_context, server_context
from foundation.tls.errors import TlsError
from foundation.tls.names import TLS13_SUITES, openssl_name
from tests.support.certificates import Certificates

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
OLDER = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def server(certificates: Certificates, **changes: object) -> ssl.SSLContext:
    given = {"certificate": certificates.server, "key": certificates.key(certificates.server), **changes}
    return server_context(ServerFiles(**given))  # type: ignore[arg-type]  # values of mixed types


@pytest.mark.parametrize(
    ("protocols", "ciphers", "lowest", "highest"),
    [
        ((), (), V12, V13),
        (("TLSv1.3",), (), V13, V13),
        (("TLSv1.2",), (), V12, V12),
        ((), (OLDER,), V12, V12),
        ((), TLS13_SUITES, V13, V13),
        ((), (OLDER, *TLS13_SUITES), V12, V13),
    ],
)
def test_list_of_ciphers_is_complete(
    certificates: Certificates,
    protocols: tuple[str, ...],
    ciphers: tuple[str, ...],
    lowest: ssl.TLSVersion,
    highest: ssl.TLSVersion,
) -> None:
    context = server(certificates, protocols=protocols, ciphers=ciphers)
    assert (context.minimum_version, context.maximum_version) == (lowest, highest)
    if OLDER in ciphers:
        older = {found["name"] for found in context.get_ciphers()} - set(TLS13_SUITES)
        assert older == {"ECDHE-ECDSA-AES256-GCM-SHA384"}


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_name_of_a_cipher_is_translated_to_one_that_openssl_has(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl_name(java))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ciphers": ("TLS_AES_128_GCM_SHA256",)}, "name TLS_AES_256_GCM_SHA384, TLS_CHACHA20"),
        ({"ciphers": ("TLS_AES_512_GCM_SHA512",)}, "is no cipher of TLS 1.3"),
        ({"ciphers": (OLDER,), "protocols": ("TLSv1.3",)}, "belongs to TLSv1.3"),
        ({"ciphers": (OLDER, "NO-SUCH-CIPHER")}, "NO-SUCH-CIPHER is no cipher"),
        ({"protocols": ("SSLv3",)}, "SSLv3 is no protocol"),
        ({"key": Path("/there/is/none")}, "/there/is/none: No such file"),
        ({"trusted": Path("/dev/null")}, "/dev/null: the file has no certificate as PEM"),
    ],
)
def test_context_is_refused_when_a_name_or_file_cannot_be_used(
    certificates: Certificates, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(TlsError, match=said) as caught:
        server(certificates, **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("required", "mode"), [(True, ssl.CERT_REQUIRED), (False, ssl.CERT_OPTIONAL)])
def test_clients_are_asked_for_a_certificate_when_something_vouches_for_them(
    certificates: Certificates, required: bool, mode: ssl.VerifyMode
) -> None:
    trusted = certificates.authority
    context = server(certificates, trusted=trusted, requires_client_certificate=required)
    assert context.verify_mode == mode
    assert server(certificates).verify_mode == ssl.CERT_NONE


def test_client_trusts_the_file_alone_and_checks_names_when_told() -> None:
    assert client_context(ClientFiles()).verify_mode == ssl.CERT_REQUIRED
    assert not client_context(ClientFiles()).check_hostname
    assert client_context(ClientFiles(checks_host_name=True)).check_hostname
    careless = client_context(ClientFiles(accepts_any_server=True, checks_host_name=True))
    assert (careless.verify_mode, careless.check_hostname) == (ssl.CERT_NONE, False)
    with pytest.raises(TlsError, match="belong together"):
        client_context(ClientFiles(certificate=Path("c.pem")))


def test_client_key_is_read_with_its_password(certificates: Certificates) -> None:
    files = ClientFiles(
        certificate=certificates.server, key=certificates.locked_key("swordfish"), password="swordfish"
    )
    assert client_context(files).verify_mode == ssl.CERT_REQUIRED
    with pytest.raises(TlsError):
        client_context(ClientFiles(certificate=files.certificate, key=files.key, password="tuna"))
