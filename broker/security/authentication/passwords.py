"""PasswordProvider: names with passwords from an `.htpasswd` file (`AuthenticationProviderBasic`).

Checking a bcrypt password takes 50 to 700 ms on purpose, so threads do it, from a bounded queue in which one
address has few places. A password that was proven is remembered for a while, as a hash with a secret of this process.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from passlib.context import CryptContext
from passlib.exc import PasswordSizeError
from passlib.hash import sha256_crypt, sha512_crypt

from broker.security.authentication.credentials import (
    AuthenticationFailed,
    Credentials,
    Identity,
    checked_role,
)
from broker.security.authentication.key_files import read_key
from foundation.settings.settings import Settings
from foundation.tls.reloaded import Reloaded

BASIC: Final = "basic"
"""The method's word in CONNECT."""
THREADS: Final = 2
"""Threads that check passwords."""
WAITING_MAX: Final = 256
"""Checks that may wait or run; a further one is refused."""
WAITING_PER_HOST_MAX: Final = 16
"""Of these, checks for one address, so that a guesser leaves places for others."""
PROVEN_MAX: Final = 10_000
"""Proven passwords that are remembered."""
PROVEN_NS: Final = 300 * 10**9
"""Time for which a proven password is remembered."""
CREDENTIALS_BYTES_MAX: Final = 4096
"""Longest name and password together."""
PASSWORD_BYTES_MAX: Final = 256
"""Longest password. All forms but bcrypt are computed in Python, which holds the GIL, in time that grows with the length."""
ROUNDS_MAX: Final = 50_000
"""Most rounds of a SHA-256 or SHA-512 password: about 50 ms of Python for 256 bytes. `htpasswd` makes 5,000."""

SCHEMES: Final = ("bcrypt", "apr_md5_crypt", "ldap_sha1", "sha256_crypt", "sha512_crypt")
"""Forms of stored passwords, in the library's words: `htpasswd -B`, `-m`, `-s`, `-2`, `-5`."""


class PasswordProvider:
    """Proves a name by its password."""

    name = "AuthenticationProviderBasic"
    """Apache's name of the class."""
    method = BASIC
    """The word in CONNECT."""

    def __init__(self, stored: Reloaded[dict[str, str]], now_ns: Callable[[], int]) -> None:
        """`stored` has the line of the file for each name; `now_ns` is the monotonic clock."""
        self._stored = stored
        self._known: Mapping[str, str] = {}
        self._now_ns = now_ns
        self._context = CryptContext(schemes=list(SCHEMES), truncate_error=False)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="passwords")
        self._waiting: Counter[str] = Counter()
        self._secret = secrets.token_bytes(32)
        # Digest of a proven name and password -> when it is forgotten, oldest first.
        self._proven: OrderedDict[bytes, int] = OrderedDict()

    async def authenticate(self, credentials: Credentials) -> Identity:
        """Returns the name as the role. Raises AuthenticationFailed for a wrong password and a full queue."""
        data = credentials.data
        name, colon, password = data.partition(b":")
        if not colon or len(data) > CREDENTIALS_BYTES_MAX or len(password) > PASSWORD_BYTES_MAX:
            raise AuthenticationFailed("the name and the password are malformed")
        try:
            user = name.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("the name and the password are malformed") from None
        digest = hmac.digest(self._secret, data, hashlib.sha256)
        stored = await self._lines()
        if not self._is_proven(digest):
            line = stored.get(user)
            # A name without a line costs as much time as one with a line, so the time tells nothing about names.
            checked = line or next(iter(stored.values()))
            if not await self._check(credentials.host, password, checked) or line is None:
                raise AuthenticationFailed("the name or the password is wrong")
            if stored is self._known:
                # Else the file has changed since, and may lack the name.
                self._remember(digest)
        return Identity(checked_role(user))

    async def _lines(self) -> Mapping[str, str]:
        """Returns the line for each name; passwords that were proven by a former file are forgotten."""
        stored = await self._stored.fetch()
        if stored is not self._known:
            self._known = stored
            self._proven.clear()
        return stored

    async def _check(self, host: str, password: bytes, line: str) -> bool:
        if self._waiting.total() >= WAITING_MAX or self._waiting[host] >= WAITING_PER_HOST_MAX:
            raise AuthenticationFailed("too many passwords wait to be checked")
        self._waiting[host] += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, self._verify, password, line)
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]

    def _verify(self, password: bytes, line: str) -> bool:
        """Runs in a thread."""
        try:
            # bcrypt reads 72 bytes and newer versions refuse more; `htpasswd` cuts them off without a word.
            given = password[:72] if line.startswith("$2") else password
            return bool(self._context.verify(given, line))
        except (ValueError, TypeError, PasswordSizeError):  # A NUL in the password, for one.
            return False

    def _is_proven(self, digest: bytes) -> bool:
        until_ns = self._proven.get(digest)
        if until_ns is None:
            return False
        if self._now_ns() < until_ns:
            return True
        del self._proven[digest]
        return False

    def _remember(self, digest: bytes) -> None:
        self._proven[digest] = self._now_ns() + PROVEN_NS
        self._proven.move_to_end(digest)
        if len(self._proven) > PROVEN_MAX:
            self._proven.popitem(last=False)

    def close(self) -> None:
        """Ends the threads; checks that wait are given up."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def stored_passwords(settings: Settings) -> dict[str, str]:
    """Reads `basicAuthConf`: a line per name. Raises SettingsError that names the line and never its text."""
    name = "basicAuthConf"
    if not settings.str(name):
        raise settings.error(name, "the provider of passwords needs an .htpasswd file")
    try:
        return parse_htpasswd(_contents(settings.str(name)))
    except ValueError as error:
        raise settings.error(name, str(error)) from None


def _contents(text: str) -> bytes:
    """Returns the file's bytes; a text that names no file may be their base64, as in Pulsar."""
    try:
        return read_key(text)
    except ValueError:
        with contextlib.suppress(ValueError):
            return base64.b64decode(text, validate=True)
        raise


def parse_htpasswd(data: bytes) -> dict[str, str]:
    """Returns the stored form of the password for each name. Raises ValueError with the number of the line."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("the passwords are no UTF-8 text") from None
    context = CryptContext(schemes=list(SCHEMES))
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, stored = line.strip().partition(":")
        if not colon or not name:
            raise ValueError(f"line {number} is not of the form name:password")
        if not context.identify(stored):
            raise ValueError(
                f"line {number}: the password is in no form that is accepted: bcrypt (htpasswd -B), apr1, SHA"
            )
        rounds = _rounds(stored, number)
        if rounds > ROUNDS_MAX:
            raise ValueError(
                f"line {number}: the password has {rounds} rounds of SHA, at most {ROUNDS_MAX} are accepted;"
                " bcrypt (htpasswd -B) may cost more time without harm"
            )
        if name in found:
            raise ValueError(f"line {number} repeats a name")
        found[name] = stored
    if not found:
        raise ValueError("there is no name in it")
    return found


def _rounds(stored: str, number: int) -> int:
    """Returns the rounds of a SHA-256 or SHA-512 password, 0 for other forms, whose cost is constant or free of the GIL."""
    for form in (sha256_crypt, sha512_crypt):
        if form.identify(stored):
            try:
                return int(form.from_string(stored).rounds)
            except ValueError:
                raise ValueError(f"line {number}: the SHA password is malformed; make it anew") from None
    return 0
