"""Decrypts entries that their producer encrypted, with private keys that the user gives.

Pulsar's clients encrypt the payload of an entry, compressed or not, by AES in Galois/counter mode. The metadata carries
the nonce and the AES key, once for each public key that the producer was given, encrypted by RSA (OAEP, SHA-1) or, from
the Java client, by ECIES for a key on an elliptic curve. An entry that is decrypted gets a frame without these fields, so
that no later stage knows of encryption.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from protocol.pulsar_api_pb2 import MessageMetadata
from pyspark_pulsar.cutting.entry_table import EntryField, EntryTable
from pyspark_pulsar.cutting.frames import frame_of, frame_with, messages_of, metadata_of
from pyspark_pulsar.cutting.messages import Messages
from pyspark_pulsar.cutting.protobuf_columns import Ints
from pyspark_pulsar.errors import MalformedEntry, OptionError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

log = logging.getLogger("pyspark_pulsar")
_FIELDS: Final = ("encryption_keys", "encryption_algo", "encryption_param")
_DATA_KEYS_MAX: Final = 1024
"""AES keys that are remembered; a producer makes a new one every four hours."""


class Decryption:
    """Private keys, and the AES keys that they have opened. One per task."""

    def __init__(self, private_keys: Mapping[str, bytes], *, discard: bool) -> None:
        """`private_keys`: PEM by the name of the public key; the empty name stands for every other one.

        `discard` leaves entries out that cannot be decrypted, with a warning; without it they are an error.
        """
        self._private_keys = private_keys
        self._discard = discard
        self._open = lru_cache(_DATA_KEYS_MAX)(self._decrypted_key)

    def decrypt(self, messages: Messages, entries: EntryTable) -> Messages:
        """Returns frames without encryption; `messages` itself if no entry is encrypted or no key is given.

        An entry that no key opens stays as it is; `readable` says so where the query wants it.
        """
        if not self._private_keys or not entries.metadata.has_repeated(EntryField.ENCRYPTION_KEYS):
            return messages
        encrypted = set(entries.encrypted_rows().tolist())
        frames = []
        for row in range(len(entries)):
            opened = self._opened(messages, entries, row) if row in encrypted else None
            frames.append(frame_of(messages, entries, row) if opened is None else opened)
        return messages_of(frames)

    def readable(self, messages: Messages, entries: EntryTable, rows: Ints) -> Ints:
        """Returns the rows that are not encrypted any more; the others are an error, or discarded with a warning.

        Only for rows that the query wants: an entry after its end must not make it fail. MalformedEntry.
        """
        if not entries.metadata.has_repeated(EntryField.ENCRYPTION_KEYS):
            return rows
        closed = np.intersect1d(entries.encrypted_rows(), rows)
        for row in closed.tolist():
            reason = self._reason(metadata_of(messages, entries, row))
            text = f"entry {entries.ledger_ids[row]}:{entries.entry_ids[row]} is encrypted, and {reason}"
            if not self._discard:
                raise MalformedEntry(
                    f"{text}; pulsar.reader.cryptoFailureAction=DISCARD leaves such entries out"
                )
            log.warning("%s; it is left out", text)
        return np.setdiff1d(rows, closed)

    def _opened(self, messages: Messages, entries: EntryTable, row: int) -> bytes | None:
        """Returns the frame of an entry without its encryption; None where no key opens it."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        metadata = metadata_of(messages, entries, row)
        start, end = int(entries.payload_starts[row]), int(entries.payload_ends[row])
        payload = bytes(memoryview(messages.buffer)[start:end])
        for key in metadata.encryption_keys:
            if self._has(key.key):
                try:
                    data_key = self._open(key.key, key.value)
                    plain = AESGCM(data_key).decrypt(metadata.encryption_param, payload, None)
                # ValueError for an AES key that RSA does not open; `_reason` then says so, if the query wants the entry.
                except (InvalidTag, ValueError):
                    continue
                for name in _FIELDS:
                    metadata.ClearField(name)
                return frame_with(messages, row, metadata, plain)
        return None

    def _has(self, name: str) -> bool:
        return name in self._private_keys or "" in self._private_keys

    def _reason(self, metadata: MessageMetadata) -> str:
        names = [key.key for key in metadata.encryption_keys]
        known = [name for name in names if self._has(name)]
        if known:
            return f"the private key given for {', '.join(map(repr, known))} does not open it"
        return f"decryptionKeys has none of its keys: {', '.join(map(repr, names))}"

    def _decrypted_key(self, name: str, encrypted: bytes) -> bytes:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

        pem = self._private_keys.get(name) or self._private_keys[""]
        key = parse_private_key(name, pem)
        if not isinstance(key, RSAPrivateKey):
            return open_ecies(key, encrypted)
        # The clients' format fixes SHA-1 here; OAEP does not need the hash to be free of collisions.
        mask = padding.MGF1(hashes.SHA1())
        return key.decrypt(encrypted, padding.OAEP(mask, hashes.SHA1(), None))


_MAC_KEY: Final = 16
"""Bytes of the key of the authentication code."""
_SHA1: Final = 20
"""Bytes of a hash by SHA-1."""


def open_ecies(key: EllipticCurvePrivateKey, sealed: bytes) -> bytes:
    """Returns what BouncyCastle's cipher "ECIES", without parameters, has sealed for the key. ValueError if it does not fit.

    `sealed`: the sender's point, uncompressed; the text, combined with a key stream by XOR; an authentication code. Both
    keys come from KDF2 (ISO 18033-2, SHA-1) over the point and the shared secret: first that of the code.
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    point_bytes = 1 + 2 * -(-key.curve.key_size // 8)
    point, closed, code = sealed[:point_bytes], sealed[point_bytes:-_SHA1], sealed[-_SHA1:]
    sender = ec.EllipticCurvePublicKey.from_encoded_point(key.curve, point)
    seed = point + key.exchange(ec.ECDH(), sender)
    blocks = -(-(_MAC_KEY + len(closed)) // _SHA1)
    stream = b"".join(hashlib.sha1(seed + number.to_bytes(4)).digest() for number in range(1, blocks + 1))
    # The eight bytes are the length of the encoding parameters, which there are none of.
    own_code = hmac.digest(stream[:_MAC_KEY], closed + bytes(8), "sha1")
    if not hmac.compare_digest(own_code, code):
        raise ValueError("the key does not fit")
    return bytes(one ^ other for one, other in zip(closed, stream[_MAC_KEY:], strict=False))


def parse_private_key(name: str, pem: bytes) -> RSAPrivateKey | EllipticCurvePrivateKey:
    """Returns an RSA key or one on an elliptic curve. OptionError for others; the text repeats no byte of them."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise OptionError("decryptionKeys needs the package cryptography: pip install cryptography") from None
    shown = f"decryptionKeys: the key for {name!r}" if name else "decryptionKeys: the key"
    # `openssl ecparam -genkey` writes the curve before the key, and repeats it in the key.
    _, ends, rest = pem.partition(b"-----END EC PARAMETERS-----")
    try:
        key = load_pem_private_key(rest if ends else pem, None)
    except (ValueError, TypeError):
        raise OptionError(f"{shown} is no private key in PEM without a password") from None
    if not isinstance(key, RSAPrivateKey | EllipticCurvePrivateKey):
        raise OptionError(f"{shown} is neither an RSA key nor one on an elliptic curve (ECDSA)")
    return key


def read_key(name: str, place: str) -> bytes:
    """Returns the PEM of a key from a path, `file://PATH` or `data:…;base64,TEXT`. OptionError."""
    if place.startswith("data:"):
        head, _, text = place.partition(",")
        try:
            pem = base64.b64decode(text, validate=True) if head.endswith(";base64") else text.encode()
        except ValueError:
            raise OptionError("decryptionKeys: a key is no base64 after its comma") from None
    else:
        path = place.removeprefix("file://")
        if "-----BEGIN" in path:
            # The error of a file that does not exist would repeat the key.
            raise OptionError(
                "decryptionKeys: a key itself is given; expected is its path or data:application/x-pem-file;base64,…"
            )
        try:
            with open(path, "rb") as file:
                pem = file.read()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no path"
            raise OptionError(f"decryptionKeys: {path} cannot be read: {reason}") from None
    parse_private_key(name, pem)
    return pem
