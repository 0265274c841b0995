"""`magnetar token`: makes, shows and checks keys and tokens, with the flags of `pulsar tokens`.

Keys are named as in the broker's settings: a path, `file:PATH` or `data:;base64,TEXT`. Files with a secret or a private
key can be read by their owner alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.clients.client import CommandError, fail
from magnetar.process.shared_options import CommandParser

if TYPE_CHECKING:
    from broker.security.authentication.signatures import Claims

PAIRS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Algorithms with a private and a public key."""
SECRETS = ("HS256", "HS384", "HS512")
"""Algorithms with one secret key."""
TOKEN_VARIABLE = "TOKEN"
"""Variable of the environment that holds the token where neither argument nor option names one, as in Pulsar."""


def main(argv: list[str]) -> int:
    """Runs one action. Returns 0, or 1 after one line on standard error."""
    arguments = _parser().parse_args(argv)
    action: Callable[[argparse.Namespace], None] = arguments.run
    from broker.security.authentication.credentials import AuthenticationFailed

    try:
        action(arguments)
    except (CommandError, AuthenticationFailed, ValueError) as error:
        return fail("token", error)
    except OSError as error:
        return fail("token", CommandError(f"{error.filename}: {error.strerror}"))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser("magnetar token", description="Make, show and check keys and tokens.")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    secret = _action(actions, "create-secret-key", "make a key that signs and checks", _create_secret_key)
    _algorithm(secret, "HS256", SECRETS)
    secret.add_argument("-b", "--base64", action="store_true", help="write the key in base64")
    secret.add_argument("-o", "--output", type=Path, metavar="FILE", help="else standard output")
    pair = _action(actions, "create-key-pair", "make a key that signs and one that checks", _create_key_pair)
    _algorithm(pair, "RS256", PAIRS)
    pair.add_argument("--output-private-key", type=Path, metavar="FILE", required=True)
    pair.add_argument("--output-public-key", type=Path, metavar="FILE", required=True)
    create = _action(actions, "create", "make a token", _create)
    _algorithm(create, "RS256", PAIRS)
    create.add_argument("-s", "--subject", metavar="ROLE", required=True, help="role of the token's client")
    create.add_argument("-e", "--expiry-time", metavar="TIME", help="such as 30m, 1h, 3d, 10y; else never")
    create.add_argument("-hs", "--headers", action="append", default=[], metavar="KEY=VALUE")
    _keys(create, "-pk", "--private-key")
    validate = _action(actions, "validate", "check the signature and the time of a token", _validate)
    _algorithm(validate, "RS256", PAIRS)
    _keys(validate, "-pk", "--public-key")
    show = _action(actions, "show", "print a token's header and claims, unchecked", _show)
    for one in (validate, show):
        one.add_argument("token", nargs="?", metavar="TOKEN", help="else --stdin, --token-file or $TOKEN")
        one.add_argument("-i", "--stdin", action="store_true", help="read the token from standard input")
        one.add_argument("-f", "--token-file", type=Path, metavar="FILE", help="read the token from a file")
    return parser


def _action(
    actions: argparse._SubParsersAction[Any],
    name: str,
    help_text: str,
    run: Callable[[argparse.Namespace], None],
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=help_text, description=help_text)
    parser.set_defaults(run=run)
    return parser


def _algorithm(parser: argparse.ArgumentParser, default: str, choices: tuple[str, ...]) -> None:
    parser.add_argument(
        "-a", "--signature-algorithm", default=default, choices=choices, help=f"default: {default}"
    )


def _keys(parser: argparse.ArgumentParser, short: str, long: str) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        short, long, metavar="KEY", dest="pair_key", help="a path, file:PATH or data:;base64,…"
    )
    which.add_argument("-sk", "--secret-key", metavar="KEY", help="a path, file:PATH or data:;base64,…")


# The actions. Each imports the libraries of keys itself, so that `--help` does not pay for them.


def _create_secret_key(arguments: argparse.Namespace) -> None:
    import base64

    from magnetar.clients.token_keys import new_secret

    key = new_secret(arguments.signature_algorithm)
    data = base64.b64encode(key) if arguments.base64 else key
    if arguments.output is not None:
        _write_secret(arguments.output, data)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _create_key_pair(arguments: argparse.Namespace) -> None:
    from magnetar.clients.token_keys import new_pair

    pair = new_pair(arguments.signature_algorithm)
    _write_secret(arguments.output_private_key, pair.private)
    arguments.output_public_key.write_bytes(pair.public)


def _create(arguments: argparse.Namespace) -> None:
    from broker.security.authentication.credentials import checked_role
    from broker.security.authentication.key_files import read_key
    from magnetar.clients.token_keys import expiry_after, token_by_private_key, token_by_secret

    claims: dict[str, object] = {"sub": checked_role(arguments.subject)}
    if claims["sub"] is None:
        raise CommandError("--subject is empty; name the role of the token's client")
    if arguments.expiry_time:
        claims["exp"] = expiry_after(arguments.expiry_time)
    headers = dict(_header(text) for text in arguments.headers)
    if arguments.secret_key:
        print(token_by_secret(read_key(arguments.secret_key), claims, headers))
    else:
        key = read_key(arguments.pair_key)
        print(token_by_private_key(key, arguments.signature_algorithm, claims, headers))


def _validate(arguments: argparse.Namespace) -> None:
    import time

    from broker.security.authentication.key_files import read_key
    from broker.security.authentication.signatures import check_times
    from magnetar.clients.token_keys import claims_by_key

    key = read_key(arguments.secret_key or arguments.pair_key)
    claims = claims_by_key(_token(arguments), key, is_secret=bool(arguments.secret_key))
    check_times(claims, time.time(), 0)
    print(_text(claims))


def _show(arguments: argparse.Namespace) -> None:
    from broker.security.authentication.signatures import unverified_part

    token = _token(arguments)
    print(_text(unverified_part(token, 0)))
    print("---")
    print(_text(unverified_part(token, 1)))


def _token(arguments: argparse.Namespace) -> bytes:
    if arguments.token:
        return str(arguments.token).encode()
    if arguments.stdin:
        return sys.stdin.buffer.read().strip()
    if arguments.token_file is not None:
        return bytes(arguments.token_file.read_bytes().strip())
    if found := os.environ.get(TOKEN_VARIABLE):
        return found.encode()
    raise CommandError("which token? Give it as an argument, with --stdin or --token-file, or in $TOKEN")


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or name in ("alg", "crit", "b64"):
        raise CommandError("--headers takes key=value, and no key that changes how a token is signed")
    return name, value


def _text(part: Claims) -> str:
    return json.dumps(part, separators=(",", ":"))


def _write_secret(path: Path, data: bytes) -> None:
    """Writes a file that its owner alone can read."""
    # Removed first: the mode holds for new files alone, and an old one may be open to others.
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
