"""`magnetar token`: the flags of `pulsar tokens`, and keys and tokens in Apache's formats."""

from __future__ import annotations

import base64
import io
import json
import stat
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from magnetar.commands.token_command import main

PAIRS: Final = ("RS256", "PS384", "ES256", "ES384", "ES512")

Output = pytest.CaptureFixture[str]


def run(capsys: Output, *words: str) -> str:
    assert main([*words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out.strip()


def error(capsys: Output, *words: str) -> str:
    assert main([*words]) == 1
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return text


@pytest.mark.parametrize(("algorithm", "length"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
def test_secret_key_signs_and_checks(capsys: Output, tmp_path: Path, algorithm: str, length: int) -> None:
    key = tmp_path / "secret.key"
    run(capsys, "create-secret-key", "-a", algorithm, "--output", str(key))
    assert len(key.read_bytes()) == length
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    token = run(capsys, "create", "--secret-key", f"file://{key}", "--subject", "me", "--headers", "kid=k")
    header, claims = run(capsys, "show", token).split("\n---\n")
    assert json.loads(header) == {"typ": "JWT", "alg": algorithm, "kid": "k"}
    assert json.loads(claims) == {"sub": "me"}
    assert json.loads(run(capsys, "validate", "-sk", str(key), token)) == {"sub": "me"}


def test_secret_key_in_base64_is_a_data_url(capsys: Output) -> None:
    text = run(capsys, "create-secret-key", "--base64")
    assert len(base64.b64decode(text)) == 32
    url = f"data:;base64,{text}"
    token = run(capsys, "create", "-sk", url, "-s", "me")
    run(capsys, "validate", "-sk", url, token)


@pytest.mark.parametrize("algorithm", PAIRS)
def test_key_pair_signs_and_checks(capsys: Output, tmp_path: Path, algorithm: str) -> None:
    private, public = tmp_path / "private.key", tmp_path / "public.key"
    run(
        capsys,
        *("create-key-pair", "-a", algorithm),
        *("--output-private-key", str(private), "--output-public-key", str(public)),
    )
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    token = run(capsys, "create", "-a", algorithm, "-pk", str(private), "-s", "me")
    assert json.loads(run(capsys, "show", token).split("\n")[0]) == {"typ": "JWT", "alg": algorithm}
    assert json.loads(run(capsys, "validate", "-a", algorithm, "-pk", str(public), token)) == {"sub": "me"}
    assert "signature" in error(capsys, "validate", "-pk", str(public), token[:-6] + "AAAAAA")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("2m", 120), ("1h", 3600), ("3d", 259_200), ("10y", 315_360_000)]
)
def test_expiry_time_lies_in_the_future(capsys: Output, text: str, seconds: int) -> None:
    token = run(capsys, "create", "-sk", _key(), "-s", "me", "-e", text)
    claims = json.loads(run(capsys, "show", token).split("---")[1])
    assert claims["exp"] == pytest.approx(time.time() + seconds, abs=60)


def _key() -> str:
    return "data:;base64," + base64.b64encode(bytes(32)).decode()


def test_token_comes_from_each_place(capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = run(capsys, "create", "-sk", _key(), "-s", "me")
    path = tmp_path / "token"
    path.write_text(token + "\n")
    run(capsys, "validate", "-sk", _key(), "--token-file", str(path))
    monkeypatch.setenv("TOKEN", token)
    run(capsys, "validate", "-sk", _key())
    monkeypatch.delenv("TOKEN")
    assert "which token?" in error(capsys, "show")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(token.encode() + b"\n")))
    run(capsys, "validate", "-sk", _key(), "--stdin")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("create", "-sk", "data:;base64,AAAA", "-s", "me"), "at least 32 bytes, this one has 3"),
        (("create", "-sk", _key(), "-s", "me", "-e", "soon"), "'soon' is no time"),
        (("create", "-sk", _key(), "-s", "a\nb"), "control characters"),
        (("create", "-sk", _key(), "-s", ""), "--subject is empty"),
        (("create", "-sk", _key(), "-s", "me", "-hs", "alg=none"), "no key that changes how"),
        (("create", "-pk", _key(), "-s", "me"), "no private key in DER or PEM"),
        (("validate", "-sk", "/no/such/key", "x"), "No such file"),
        (("validate", "-sk", _key(), "-f", "/no/such/token"), "/no/such/token: No such file"),
        (("show", "x.y"), "malformed"),
    ],
)
def test_mistake_is_one_line(capsys: Output, words: tuple[str, ...], text: str) -> None:
    assert text in error(capsys, *words)


def test_expired_token_is_not_valid(capsys: Output) -> None:
    token = run(capsys, "create", "-sk", _key(), "-s", "me", "-e", "0s")
    assert "expired" in error(capsys, "validate", "-sk", _key(), token)


def test_private_key_of_another_kind_is_refused(capsys: Output, tmp_path: Path) -> None:
    private, public = str(tmp_path / "a"), str(tmp_path / "b")
    run(
        capsys,
        "create-key-pair",
        "-a",
        "ES256",
        "--output-private-key",
        private,
        "--output-public-key",
        public,
    )
    assert "does not fit RS256" in error(capsys, "create", "-pk", private, "-s", "me")
