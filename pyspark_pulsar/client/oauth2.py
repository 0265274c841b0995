"""Fetches access tokens by OAuth 2.0's client credentials, for AuthenticationOAuth2 of Pulsar's clients.

The issuer's document `/.well-known/openid-configuration` names the address for tokens. Each process keeps its token until
shortly before it expires.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from functools import lru_cache
from typing import IO, Any, Final, NamedTuple

from pyspark_pulsar.errors import IssuerRefused, OptionError

log = logging.getLogger("pyspark_pulsar")

_TIMEOUT_S: Final = 30.0
_ANSWER_BYTES_MAX: Final = 1 << 20
_RENEW_BEFORE_S: Final = 60.0
"""A token that expires sooner is replaced; brokers look at the expiry about once a minute."""
_LIFETIME_S: Final = 300.0
"""Lifetime of a token whose answer names none."""


class ClientCredentials(NamedTuple):
    """An application's account at an issuer. Pickled to the tasks."""

    issuer_url: str
    """`https://…`, without `/.well-known/openid-configuration`."""
    client_id: str
    """The name of the account."""
    client_secret: str
    """The account's secret."""
    audience: str | None
    """The service that the token is for; None leaves the choice to the issuer."""
    scope: str | None
    """The rights that are asked for; None leaves the choice to the issuer."""

    def __repr__(self) -> str:
        """Hides the secret, which a stack trace of Spark would show otherwise."""
        return f"ClientCredentials({self.issuer_url!r}, {self.client_id!r})"

    def token(self) -> bytes:
        """Returns a token that holds for a minute at least, or, while the issuer gives no other, the present one.

        IssuerRefused where the issuer gives none and the present one has expired.
        """
        kept = _tokens(self)
        if kept.expires_at - _RENEW_BEFORE_S < time.monotonic():
            try:
                kept.text, lifetime_s = _fetch(self)
            except IssuerRefused as error:
                if kept.expires_at < time.monotonic():
                    raise
                log.warning("%s; the present token is used until it expires", error)
            else:
                kept.expires_at = time.monotonic() + lifetime_s
        return kept.text


class _Token:
    """The newest token of an account in this process."""

    def __init__(self) -> None:
        self.text = b""
        self.expires_at = -math.inf


@lru_cache
def _tokens(account: ClientCredentials) -> _Token:
    return _Token()


def _fetch(account: ClientCredentials) -> tuple[bytes, float]:
    """Returns a new token and its lifetime in seconds."""
    described = _ask(account, f"{account.issuer_url.rstrip('/')}/.well-known/openid-configuration", None)
    form = {
        "grant_type": "client_credentials",
        "client_id": account.client_id,
        "client_secret": account.client_secret,
        "audience": account.audience,
        "scope": account.scope,
    }
    given = {name: text for name, text in form.items() if text is not None}
    address = str(described.get("token_endpoint"))
    if account.issuer_url.startswith("https://") and not address.startswith("https://"):
        raise _refused(
            account, "NotEncrypted", f"its token_endpoint is {address!r}: the secret goes to https alone"
        )
    answer = _ask(account, address, urllib.parse.urlencode(given).encode())
    token = answer.get("access_token")
    if not isinstance(token, str) or not token:
        raise _refused(account, "NoToken", "the answer has no access_token")
    lifetime = answer.get("expires_in")
    return token.encode(), float(lifetime) if isinstance(lifetime, int | float) else _LIFETIME_S


def _ask(account: ClientCredentials, url: str, form: bytes | None) -> dict[str, Any]:
    """Sends a request and returns the JSON object of the answer; `form` makes it a POST."""
    if not url.startswith(("https://", "http://")):
        raise _refused(account, "NoAddress", f"{url!r} is no http address")
    try:
        opener = urllib.request.build_opener(_Redirects(account))
        with opener.open(url, form, timeout=_TIMEOUT_S) as answer:
            found = json.loads(answer.read(_ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        # The body explains the refusal in the fields of RFC 6749, and holds nothing secret.
        body = error.read(_ANSWER_BYTES_MAX).decode(errors="replace").strip()
        raise _refused(account, str(error.code), f"{url}: {body[:200]}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _refused(account, "NoAnswer", f"{url}: {error}") from None
    if not isinstance(found, dict):
        raise _refused(account, "NoAnswer", f"{url}: no JSON object")
    return found


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows an https issuer's redirects to https alone.

    An answer over http could be exchanged on its way, and with it the address that the secret is sent to.
    """

    def __init__(self, account: ClientCredentials) -> None:
        self._account = account

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Returns the request at the new address; IssuerRefused where it leaves https."""
        if self._account.issuer_url.startswith("https://") and not newurl.startswith("https://"):
            raise _refused(
                self._account,
                "NotEncrypted",
                f"{req.full_url} redirects to {newurl!r}: an https issuer is asked over https alone",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _refused(account: ClientCredentials, code: str, message: str) -> IssuerRefused:
    return IssuerRefused(f"asking {account.issuer_url} for a token", code, message)


def parse_account(params: str) -> ClientCredentials:
    """Parses authParams of AuthenticationOAuth2, in the spelling of the Java and of the C++ client. OptionError.

    The file of `privateKey` is read here, so that the workers need no copy of it.
    """
    found = _json_object(params, "pulsar.client.authParams of AuthenticationOAuth2")
    kind = found.get("type", "client_credentials")
    if kind != "client_credentials":
        raise OptionError(f"pulsar.client.authParams: type is {kind!r}; built in is client_credentials")
    place = found.get("privateKey") or found.get("private_key")
    account = found if place is None else _json_object(_read(str(place)), f"the file {_shown(str(place))}")
    issuer = found.get("issuerUrl") or found.get("issuer_url") or account.get("issuer_url")
    values = {
        "issuerUrl": issuer,
        "client_id": account.get("client_id"),
        "client_secret": account.get("client_secret"),
    }
    for name in ("audience", "scope"):
        if not isinstance(found.get(name), str | None):
            raise OptionError(f"pulsar.client.authParams: {name} is {found[name]!r}: a text is expected")
    missing = [name for name, value in values.items() if not isinstance(value, str) or not value]
    if missing:
        raise OptionError(
            f"pulsar.client.authParams: {' and '.join(missing)} missing; expected is "
            '{"issuerUrl": "https://…", "privateKey": "file:///path.json", "audience": "…"}, and in the file '
            '{"client_id": "…", "client_secret": "…"}'
        )
    return ClientCredentials(
        str(issuer),
        str(values["client_id"]),
        str(values["client_secret"]),
        found.get("audience"),
        found.get("scope"),
    )


def _json_object(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(f"{name}: a JSON object is expected")
    return found


def _shown(place: str) -> str:
    return "of the data: text" if place.startswith("data:") else place


def _read(place: str) -> str:
    if place.startswith("data:"):
        head, _, text = place.partition(",")
        try:
            return base64.b64decode(text, validate=True).decode() if head.endswith(";base64") else text
        except ValueError:
            raise OptionError("pulsar.client.authParams: privateKey is no base64 after its comma") from None
    path = place.removeprefix("file:").removeprefix("//")
    if path.lstrip().startswith("{"):
        # The error of a file that does not exist would repeat the secret.
        raise OptionError(
            "pulsar.client.authParams: privateKey is the account itself; expected is file:///path.json or "
            "data:application/json;base64,…"
        )
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise OptionError(f"pulsar.client.authParams: {path} cannot be read: {reason}") from None
