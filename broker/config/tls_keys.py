"""Rows of the broker's table: TLS of its ports and towards bookies. The columns are explained in `server_keys.py`."""

from __future__ import annotations

from foundation.settings.keys import PORT_MAX, Key, Section
from foundation.tls.names import PROTOCOLS

_CIPHERS = (
    "as Java or OpenSSL names them; unset leaves the choice to OpenSSL. The list is complete: a protocol without a "
    "cipher in it is not offered. Of TLS 1.3 name all three ciphers or none."
)

_TO_BROKERS = "TLS towards brokers"
_WITH_TLS = ("brokerClientTlsEnabled", "true")

# fmt: off
# The formatter would give each argument a line of its own; a key's facts and words read better as one row.

TLS = Section("TLS", (
    Key("brokerServicePortTls", "int", None, "port", low=0, high=PORT_MAX, optional=True,
        doc="TCP port of the binary protocol with TLS, usually 6651; 0 takes any free port, unset opens none."),
    Key("webServicePortTls", "int", None, "port", low=0, high=PORT_MAX, optional=True,
        doc="TCP port of the admin API and of `/metrics` with TLS, usually 8443; 0 takes any free port, unset opens "
            "none."),
    Key("tlsEnabled", "bool", False,
        doc="Old switch of Pulsar; brokerServicePortTls and webServicePortTls replace it. With `true` one of both must "
            "be set."),
    Key("tlsCertificateFilePath", "string", None,
        doc="File with the broker's certificate, and with the certificates that vouch for it, as PEM."),
    Key("tlsKeyFilePath", "string", None,
        doc="File with the private key of that certificate, as PEM without a password."),
    Key("tlsTrustCertsFilePath", "string", None,
        doc="File with the certificates that vouch for clients, as PEM. Unset, no client is asked for a certificate."),
    Key("tlsCertRefreshCheckDurationSec", "int", 300, "s", low=0,
        doc="Seconds between two checks of these files, and of those of tokenSecretKey, tokenPublicKey and basicAuthConf. "
            "Changed ones hold for new connections; files that cannot be used leave the former ones in place and log a "
            "line. 0 checks with each connection."),
    Key("tlsRequireTrustedClientCertOnConnect", "bool", False,
        doc="Refuse connections of clients without a certificate that tlsTrustCertsFilePath vouches for."),
    Key("tlsAllowInsecureConnection", "bool", False,
        doc="Also admit clients whose certificate nothing vouches for: no certificate is asked for then, so none "
            "counts as a client's identity."),
    Key("tlsProtocols", "list", None, choices=PROTOCOLS,
        doc="Protocols of brokerServicePortTls; unset means both."),
    Key("tlsCiphers", "list", None,
        doc=f"Ciphers of brokerServicePortTls, {_CIPHERS}"),
    Key("webServiceTlsProtocols", "list", None, choices=PROTOCOLS,
        doc="Protocols of webServicePortTls; unset means both."),
    Key("webServiceTlsCiphers", "list", None,
        doc=f"Ciphers of webServicePortTls, {_CIPHERS}"),
))

PEERS = Section("Requests to other brokers", (
    Key("brokerClientTlsEnabled", "bool", False, dynamic=True, asks_for=_TO_BROKERS,
        doc="Talk TLS to the other brokers of the cluster: to webServicePortTls, and never without TLS."),
    Key("brokerClientTrustCertsFilePath", "string", None, asks_for=_TO_BROKERS, needs=_WITH_TLS,
        doc="File with the certificates that vouch for brokers, as PEM. Unset, those of the operating system do."),
    Key("brokerClientCertificateFilePath", "string", None, asks_for=_TO_BROKERS, needs=_WITH_TLS,
        doc="File with the certificate that this broker shows to others, as PEM."),
    Key("brokerClientKeyFilePath", "string", None, asks_for=_TO_BROKERS, needs=_WITH_TLS,
        doc="File with the private key of that certificate, as PEM."),
    Key("tlsHostnameVerificationEnabled", "bool", False, v50=True, needs=_WITH_TLS,
        doc="Compare the name in another broker's certificate with its address."),
    Key("brokerClientAuthenticationPlugin", "string",
        "org.apache.pulsar.client.impl.auth.AuthenticationDisabled", dynamic=True,
        doc="Plugin that proves this broker's role to the others: Apache's AuthenticationToken, AuthenticationBasic or "
            "AuthenticationTls by its full name. The role needs the rights of a superuser."),
    Key("brokerClientAuthenticationParameters", "string", None, dynamic=True,
        doc="Parameters of that plugin: `token:TEXT` or `file:PATH`, `NAME:TEXT`, or `tlsCertFile:PATH,tlsKeyFile:PATH`."),
))

BOOKIE_TLS = Section("TLS towards bookies", (
    Key("bookkeeperTLSClientAuthentication", "bool", False,
        doc="Talk TLS to the bookies and show them the certificate of bookkeeperTLSCertificateFilePath. A bookie in the "
            "broker's own process needs no TLS."),
    Key("bookkeeperTLSCertificateFilePath", "string", None,
        doc="File with the certificate that the broker shows to bookies, as PEM."),
    Key("bookkeeperTLSKeyFilePath", "string", None,
        doc="File with the private key of that certificate, as PEM."),
    Key("bookkeeperTLSKeyStorePasswordPath", "string", None,
        doc="File whose text is the password of that key."),
    Key("bookkeeperTLSTrustCertsFilePath", "string", None,
        doc="File with the certificates that vouch for bookies, as PEM; setting it alone also switches TLS towards "
            "bookies on. Unset, the certificates of the operating system vouch."),
    Key("bookkeeperTlsCertFilesRefreshDurationSeconds", "int", 300, "s", low=0,
        doc="Seconds between two checks of these files; changed ones hold for new connections."),
    Key("bookkeeper_tlsHostnameVerificationEnabled", "bool", False,
        doc="Compare the name in a bookie's certificate with its address."),
))

# fmt: on
