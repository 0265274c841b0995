"""Rows of the broker's table: who a client is. `server_keys.py` explains names, defaults and words."""

from __future__ import annotations

from typing import Final

from foundation.settings.keys import INT_MAX, Key, Section

_PACKAGE: Final = "org.apache.pulsar.broker.authentication"
TOKEN_PROVIDER: Final = f"{_PACKAGE}.AuthenticationProviderToken"
"""Apache's class for tokens that a key of the broker's settings signs."""
BASIC_PROVIDER: Final = f"{_PACKAGE}.AuthenticationProviderBasic"
"""Apache's class for names with passwords."""
TLS_PROVIDER: Final = f"{_PACKAGE}.AuthenticationProviderTls"
"""Apache's class for client certificates."""
OPENID_PROVIDER: Final = f"{_PACKAGE}.oidc.AuthenticationProviderOpenID"
"""Apache's class for tokens whose keys an OpenID provider publishes."""
PROVIDERS: Final = (TOKEN_PROVIDER, BASIC_PROVIDER, TLS_PROVIDER, OPENID_PROVIDER)
"""Every class that `authenticationProviders` may name."""

SIGNATURES: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Algorithms with a private and a public key."""

_ON: Final = ("authenticationEnabled", "true")

# fmt: off
# The formatter would give each argument a line of its own; a key's facts and words read better as one row.

AUTHENTICATION = Section("Authentication", (
    Key("authenticationEnabled", "bool", False, asks_for="authentication",
        doc="Admit only clients that prove who they are, by a method of authenticationProviders."),
    Key("authenticationProviders", "list", None, choices=PROVIDERS, needs=_ON,
        doc="Methods of proof, as Apache's class names; several may stand in a list, and those of one method "
            "are tried in its order."),
    Key("anonymousUserRole", "string", None, needs=_ON,
        doc="Role of clients that give no credentials. Unset refuses them."),
    Key("authenticateOriginalAuthData", "bool", False, v50=True, asks_for="authentication", needs=_ON,
        doc="Check the credentials of the client behind a proxy as well; otherwise the proxy's word for the "
            "client's role holds."),
    Key("authenticateMetricsEndpoint", "bool", False, asks_for="authentication", needs=_ON,
        doc="Ask for credentials at `/metrics` too."),
    Key("authenticationRefreshCheckSeconds", "int", 60, "s", low=0, needs=_ON,
        doc="Seconds that a connected client gets for new credentials when its own have expired; 0 ends the "
            "connection at the expiry."),
    Key("tokenSecretKey", "string", None, needs=_ON,
        doc="Secret key of tokens signed with HS256, HS384 or HS512: a path, `file:PATH`, or "
            "`data:;base64,TEXT`. At least 32 bytes."),
    Key("tokenPublicKey", "string", None, needs=_ON,
        doc="Public key of tokens signed with a private one, in DER, PEM or as a JWKS: a path, `file:PATH`, or "
            "`data:;base64,TEXT`."),
    Key("tokenPublicAlg", "string", "RS256", choices=SIGNATURES, needs=_ON,
        doc="Algorithm of tokenPublicKey. A JWKS takes every algorithm here that fits the named key."),
    Key("tokenAuthClaim", "string", "sub", needs=_ON,
        doc="Claim of a token that holds the role. Of a list its first text counts."),
    Key("tokenAudienceClaim", "string", None, asks_for="authentication", needs=_ON,
        doc="Claim of a token that lists those it is for; unset leaves the audience unchecked."),
    Key("tokenAudience", "string", None, asks_for="authentication", needs=_ON,
        doc="Name of this broker, or a part of it, in tokenAudienceClaim."),
    Key("tokenAllowedClockSkewSeconds", "int", 0, "s", low=0, high=86_400, needs=_ON,
        doc="Seconds by which clocks may differ when the times in a token are checked."),
    Key("basicAuthConf", "string", None, needs=_ON,
        doc="Names and passwords as an `.htpasswd` file with bcrypt, apr1 or SHA: a path, `file:PATH`, "
            "`data:;base64,TEXT`, or the file's text in base64."),
    Key("openIDAllowedTokenIssuers", "list", None, needs=_ON,
        doc="URLs of the OpenID providers whose tokens are accepted."),
    Key("openIDAllowedAudiences", "list", None, needs=_ON,
        doc="Audiences of which a token must name one."),
    Key("openIDRoleClaim", "string", "sub", needs=_ON,
        doc="Claim of a token of an OpenID provider that holds the role."),
    Key("openIDTokenIssuerTrustCertsFilePath", "string", None, needs=_ON,
        doc="PEM file with the certificates that vouch for OpenID providers; unset trusts the system's."),
    Key("openIDRequireIssuersUseHttps", "bool", True, needs=_ON,
        doc="Refuse a start with an OpenID provider whose URL is not `https:`."),
    Key("openIDAcceptedTimeLeewaySeconds", "int", 0, "s", low=0, high=86_400, needs=_ON,
        doc="Seconds by which clocks may differ when the times in a token of an OpenID provider are checked."),
    Key("openIDCacheSize", "int", 5, "issuers", low=1, needs=_ON,
        doc="OpenID providers whose keys are kept at the same time."),
    Key("openIDCacheRefreshAfterWriteSeconds", "int", 64_800, "s", low=1, needs=_ON,
        doc="Seconds after which kept keys are fetched again at their next use, which goes on with the old "
            "ones meanwhile."),
    Key("openIDCacheExpirationSeconds", "int", 86_400, "s", low=1, needs=_ON,
        doc="Seconds after which kept keys are not used any more."),
    Key("openIDKeyIdCacheMissRefreshSeconds", "int", 300, "s", low=1, needs=_ON,
        doc="Seconds before a token with an unknown key may cause another fetch of its provider's keys."),
    Key("openIDHttpConnectionTimeoutMillis", "int", 10_000, "ms", low=1, high=INT_MAX, needs=_ON,
        doc="Milliseconds to connect to an OpenID provider."),
    Key("openIDHttpReadTimeoutMillis", "int", 10_000, "ms", low=1, high=INT_MAX, needs=_ON,
        doc="Milliseconds for each wait for an answer of an OpenID provider."),
))

# fmt: on
