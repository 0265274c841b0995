"""PasswordProvider: an .htpasswd file, checks in threads, and the memory of proven passwords."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from passlib.hash import apr_md5_crypt, bcrypt, ldap_sha1, sha256_crypt, sha512_crypt

from broker.security.authentication.credentials import AuthenticationFailed, Credentials
from broker.security.authentication.passwords import (
    PASSWORD_BYTES_MAX,
    PROVEN_NS,
    ROUNDS_MAX,
    WAITING_PER_HOST_MAX,
    PasswordProvider,
    parse_htpasswd,
)
from foundation.tls.reloaded import Reloaded

LINES = (
    "# people\n"
    f"ann:{bcrypt.using(rounds=4, ident='2y').hash('a')}\n"
    f"bob:{apr_md5_crypt.hash('b:b')}\n"
    f"cy:{ldap_sha1.hash('ç')}\n"
)


class Clock:
    ns = 0


def stored(lines: str) -> Reloaded[dict[str, str]]:
    """The lines of a file that never changes."""
    return Reloaded(
        lambda: parse_htpasswd(lines.encode()),
        (),
        subject="passwords",
        error=ValueError,
        check_s=0,
        now_ns=lambda: 0,
        warn=print,
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def provider(clock: Clock) -> Iterator[PasswordProvider]:
    made = PasswordProvider(stored(LINES), lambda: clock.ns)
    yield made
    made.close()


async def role(provider: PasswordProvider, data: bytes) -> str | None:
    return (await provider.authenticate(Credentials("basic", data, "h"))).role


@pytest.mark.parametrize(
    ("data", "expected"), [(b"ann:a", "ann"), (b"bob:b:b", "bob"), ("cy:ç".encode(), "cy")]
)
async def test_each_form_of_password_proves_its_name(
    provider: PasswordProvider, data: bytes, expected: str
) -> None:
    assert await role(provider, data) == expected


@pytest.mark.parametrize(
    "data",
    [b"", b":", b"ann", b"ann:", b"ann:A", b"bob:a", b"eve:a", b"\xff:a", b"ann:\0", b"ann:" + b"a" * 5000],
)
async def test_wrong_credentials_are_refused(provider: PasswordProvider, data: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        await role(provider, data)


async def test_proven_password_is_remembered_for_a_while(
    provider: PasswordProvider, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = []
    verify = provider._context.verify

    def counted(*given: Any) -> bool:
        checks.append(given)
        return bool(verify(*given))

    monkeypatch.setattr(provider._context, "verify", counted)
    for _ in range(3):
        await role(provider, b"ann:a")
    assert len(checks) == 1
    with pytest.raises(AuthenticationFailed):
        await role(provider, b"ann:b")
    assert len(checks) == 2
    clock.ns = PROVEN_NS
    await role(provider, b"ann:a")
    assert len(checks) == 3


async def test_address_with_many_checks_is_refused_more_and_others_are_not(
    provider: PasswordProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(provider._context, "verify", lambda *_: go.wait())
    waiting = [asyncio.ensure_future(role(provider, b"ann:%d" % n)) for n in range(WAITING_PER_HOST_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(AuthenticationFailed, match="too many"):
        await role(provider, b"ann:x")
    other = asyncio.ensure_future(provider.authenticate(Credentials("basic", b"bob:x", "other")))
    go.set()
    assert (await other).role == "bob"
    assert {await one for one in waiting} == {"ann"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no name"),
        ("ann\n", "line 1 is not of the form"),
        (f"{LINES}dan:hunter2\n", "line 5: the password is in no form"),
        (f"{LINES}ann:{ldap_sha1.hash('z')}\n", "line 5 repeats"),
        (
            f"eve:$6$rounds={ROUNDS_MAX + 1}$salt${'x' * 86}\n",
            f"line 1: the password has {ROUNDS_MAX + 1} rounds",
        ),
        (f"eve:$5$rounds=999999999$salt${'x' * 43}\n", "line 1: the password has 999999999 rounds"),
        (f"eve:$5$rounds=many$salt${'x' * 43}\n", "line 1: the SHA password is malformed"),
        ("eve:mQQQIsyvvKRtU\n", "line 1: the password is in no form"),
    ],
)
def test_file_is_refused_with_the_number_of_the_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        parse_htpasswd(text.encode())
    assert "hunter2" not in str(caught.value)


async def test_password_that_is_too_long_is_refused_before_it_is_hashed(
    provider: PasswordProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[bytes] = []
    monkeypatch.setattr(provider._context, "verify", lambda given, _: hashed.append(given))
    for length in (PASSWORD_BYTES_MAX, PASSWORD_BYTES_MAX + 1):
        with pytest.raises(AuthenticationFailed):
            await role(provider, b"bob:" + b"x" * length)
    assert [len(given) for given in hashed] == [PASSWORD_BYTES_MAX]


@pytest.mark.parametrize("form", [sha256_crypt, sha512_crypt])
async def test_sha_password_with_few_rounds_proves_its_name(form: Any) -> None:
    lines = f"dan:{form.using(rounds=5000).hash('d')}\neve:{form.using(rounds=6000).hash('e')}\n"
    provider = PasswordProvider(stored(lines), lambda: 0)
    assert [await role(provider, b"dan:d"), await role(provider, b"eve:e")] == ["dan", "eve"]
    provider.close()
