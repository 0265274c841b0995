"""Messages that the official client encrypted: batches, compressed ones, chunks, several keys, keys that do not fit."""

from __future__ import annotations

import base64
import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pulsar = pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

import numpy as np  # noqa: E402
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa  # noqa: E402
from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: E402

from protocol.pulsar_api_pb2 import MessageMetadata  # noqa: E402
from pyspark_pulsar.cutting.chunks import Chunks, Parts, parts_of  # noqa: E402
from pyspark_pulsar.cutting.decryption import Decryption, open_ecies  # noqa: E402
from pyspark_pulsar.cutting.entry_table import cut_entries  # noqa: E402
from pyspark_pulsar.cutting.messages import Messages  # noqa: E402
from pyspark_pulsar.errors import MalformedEntry, OptionError  # noqa: E402
from pyspark_pulsar.options import source_options  # noqa: E402
from tests.interop.programs import need, run  # noqa: E402
from tests.interop.test_other_clients import RUN_S, java_class_path  # noqa: E402
from tests.pyspark_pulsar.conftest import Publish, Source  # noqa: E402
from tests.pyspark_pulsar.cutting.test_cutting import frame, received  # noqa: E402

__all__ = ["java_class_path"]

JAVA = Path(__file__).resolve().parents[2] / "interop/java"
BODIES = [b"secret %d" % number for number in range(120)]


class Pair(NamedTuple):
    """Files of a key pair, with the client's reader of them."""

    public: Path
    private: Path
    reader: Any


def make_pair(folder: Path, name: str) -> Pair:
    key = rsa.generate_private_key(65537, 2048)
    public, private = folder / f"{name}.pub", folder / f"{name}.pem"
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
    private.write_bytes(pem_of(key))
    return Pair(public, private, pulsar.CryptoKeyReader(str(public), str(private)))


def pem_of(key: Any) -> bytes:
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("keys"), "first")


def values(frame: Any) -> list[bytes]:
    return [bytes(row.value) for row in frame.collect()]


@pytest.mark.parametrize("batched", [True, False])
def test_encrypted_messages_are_read_with_the_private_key(
    source: Source, publish: Publish, topic: str, pair: Pair, batched: bool
) -> None:
    """Between plain ones, with properties, and compressed before they were encrypted."""
    publish(topic, [b"plain"])
    publish(
        topic,
        BODIES,
        batching_enabled=batched,
        batching_max_messages=50,
        compression_type=pulsar.CompressionType.ZSTD,
        encryption_key="first",
        crypto_key_reader=pair.reader,
        per_message=lambda number: {"properties": {"n": str(number)}, "partition_key": f"k{number}"},
    )
    publish(topic, [b"plain again"])
    rows = source.read(topic=topic, decryptionKeys=json.dumps({"first": str(pair.private)})).collect()
    assert [bytes(row.value) for row in rows] == [b"plain", *BODIES, b"plain again"]
    assert [row["__messageProperties"] for row in rows[1:-1]] == [{"n": str(n)} for n in range(len(BODIES))]
    assert bytes(rows[7]["__key"]) == b"k6"


def test_encrypted_chunks_become_one_row(source: Source, client: Any, topic: str, pair: Pair) -> None:
    bodies = [bytes([number]) * 6_000_000 for number in range(2)]
    producer = client.create_producer(
        topic,
        chunking_enabled=True,
        batching_enabled=False,
        encryption_key="first",
        crypto_key_reader=pair.reader,
    )
    for body in bodies:
        producer.send(body)
    assert values(source.read(topic=topic, columns="value", decryptionKeys=str(pair.private))) == bodies


def chunk(number: int, of: int, name: str, public: Any) -> bytes:
    """The frame of a chunk whose AES key is encrypted for the key pair `name`."""
    data_key, nonce = AESGCM.generate_key(256), bytes(12)
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=1,
        uuid="u",
        chunk_id=number,
        num_chunks_from_msg=of,
        encryption_param=nonce,
    )
    oaep = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)
    metadata.encryption_keys.add(key=name, value=public.encrypt(data_key, oaep))
    # Every third number, since `frame` gives these to one consumer.
    return frame(3 * number, metadata, AESGCM(data_key).encrypt(nonce, b"part %d;" % number, None))


def decrypted(decryption: Decryption, frames: list[bytes]) -> Messages:
    messages = received(frames)
    return decryption.decrypt(messages, cut_entries(messages))


def parts_before(decryption: Decryption, frames: list[bytes], row: int, uuid: bytes) -> Parts:
    opened = decrypted(decryption, frames)
    return parts_of(opened, cut_entries(opened), uuid)


@pytest.mark.parametrize("looked_back", [False, True])
@pytest.mark.parametrize("closed", [None, 0, 1])
def test_message_with_a_chunk_that_no_key_opens_counts_as_encrypted(
    closed: int | None, looked_back: bool
) -> None:
    private = rsa.generate_private_key(65537, 2048)
    frames = [
        chunk(number, 2, "lost" if number == closed else "held", private.public_key()) for number in (0, 1)
    ]
    for discard in (False, True):
        decryption = Decryption({"held": pem_of(private)}, discard=discard)
        before, arrived = (frames[:1], frames[1:]) if looked_back else ([], frames)
        opened = decrypted(decryption, arrived)
        whole = Chunks().join(
            opened,
            cut_entries(opened),
            partial(parts_before, decryption, before),
        )
        entries = cut_entries(whole)
        assert len(entries) == 1
        if closed is None or discard:
            kept = decryption.readable(whole, entries, np.arange(1))
            assert len(kept) == (closed is None)
        else:
            with pytest.raises(MalformedEntry, match=r"entry 0:3 is encrypted, and .* its keys: 'lost'"):
                decryption.readable(whole, entries, np.arange(1))
        if closed is None:
            assert (
                bytes(whole.buffer[entries.payload_starts[0] : entries.payload_ends[0]]) == b"part 0;part 1;"
            )


def test_entry_without_a_fitting_key_fails_or_is_left_out(
    source: Source, publish: Publish, topic: str, pair: Pair, tmp_path: Path
) -> None:
    publish(topic, BODIES[:5], encryption_key="first", crypto_key_reader=pair.reader)
    publish(topic, [b"plain"])
    other = str(make_pair(tmp_path, "other").private)
    for keys, reason in (
        ({}, "decryptionKeys has none of its keys: 'first'"),
        ({"decryptionKeys": json.dumps({"other": other})}, "decryptionKeys has none of its keys: 'first'"),
        ({"decryptionKeys": other}, "the private key given for 'first' does not open it"),
    ):
        with pytest.raises(Exception, match=reason):
            source.read(topic=topic, columns="value", **keys).collect()
        kept = source.read(
            topic=topic, columns="value", pulsar__reader__cryptoFailureAction="DISCARD", **keys
        )
        assert values(kept) == [b"plain"]


def test_entry_behind_the_range_needs_no_key(
    source: Source, publish: Publish, topic: str, pair: Pair
) -> None:
    publish(topic, [b"plain"])
    row = source.read(topic=topic, columns="__ledger,__entry").collect()[0]
    publish(topic, BODIES[:3], encryption_key="first", crypto_key_reader=pair.reader)
    end = f"{row['__ledger']}:{row['__entry']}"
    assert values(source.read(topic=topic, columns="value", endingOffsets=end)) == [b"plain"]


def test_keys_come_from_paths_and_from_the_option_itself(pair: Pair) -> None:
    pem = pair.private.read_bytes()
    as_text = f"data:application/x-pem-file;base64,{base64.b64encode(pem).decode()}"
    for text, expected in (
        (str(pair.private), {"": pem}),
        (f"file://{pair.private}", {"": pem}),
        (json.dumps({"a": as_text, "b": str(pair.private)}), {"a": pem, "b": pem}),
    ):
        options = source_options(
            {"service.url": "pulsar://host", "topic": "t", "decryptionKeys": text}, streaming=False
        )
        assert options.private_keys == expected
        assert "PRIVATE" not in repr(options)


def test_key_on_a_curve_opens_what_the_java_client_sealed() -> None:
    """A data key that the Java client 4.0.8 (BouncyCastle's ECIES) encrypted for this key, and a damaged one."""
    key = ec.derive_private_key(
        0xCA5D7B94A960102184F26981B99805CD9A1071762C7AC63DE5C0380B7E18440, ec.SECP256R1()
    )
    sealed = bytes.fromhex(
        "041a1b006080e9a0e8c7f9d8badcacbe2419e8a3eee0813e54a761dd6f8335985cd36d50679164b1aa5ec1f84d96ebb8155a9b5389eb6e0f73"
        "911442ccc2c86c25483296bfb949f5fdbd03b19370b7b9d4f9568351efe82362d3edce681341e07e412d5f592689c66b8125a2100538d5fc66"
        "2ae2f7"
    )
    opened = "3ce38f563ffcc8b6724b3cf343c2bd4385fe327a5262fb0c3ad4fc994ce4020a"
    assert open_ecies(key, sealed).hex() == opened
    for wrong in (sealed[:-1] + b"?", sealed[:70] + b"?" + sealed[71:], sealed[:40], b""):
        with pytest.raises(ValueError):  # noqa: PT011  # Any: `_opened` then tries the next key.
            open_ecies(key, wrong)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("curve", ["prime256v1", "secp521r1"])
def test_messages_of_the_java_client_are_read_with_a_key_on_a_curve(
    source: Source, topic: str, java_class_path: str, tmp_path: Path, curve: str
) -> None:
    """The files are those of openssl, which writes the curve before the private key."""
    need("openssl")
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    for words in (
        ["ecparam", "-name", curve, "-genkey", "-out", str(private)],
        ["ec", "-in", str(private), "-pubout", "-out", str(public)],
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
    program = ["java", "-cp", java_class_path, str(JAVA / "Encryption.java")]
    done = run([*program, source.url, topic, "first", str(public), "100"], RUN_S, tmp_path)
    assert done.returncode == 0, done.stderr
    found = values(source.read(topic=topic, columns="value", decryptionKeys=str(private)))
    assert found == [b"secret %d" % number for number in range(100)]


def test_key_that_cannot_be_used_is_named_before_the_query(tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(pem_of(ed25519.Ed25519PrivateKey.generate()))
    text = tmp_path / "text"
    text.write_text("PASSWORD")
    for given, sentence in (
        (str(other), "neither an RSA key nor one on an elliptic curve"),
        (str(text), "no private key in PEM"),
        (str(tmp_path / "none"), "cannot be read: No such file"),
        ("data:application/x-pem-file;base64,%%%", "no base64"),
        ('{"first": "data:,PASSWORD"', "a path or a JSON object"),
        ("-----BEGIN PRIVATE KEY-----\nPASSWORD", "a key itself is given"),
        ("a\0b", "it is no path"),
    ):
        with pytest.raises(OptionError, match=sentence) as caught:
            source_options(
                {"service.url": "pulsar://host", "topic": "t", "decryptionKeys": given}, streaming=False
            )
        assert "PASSWORD" not in str(caught.value)
