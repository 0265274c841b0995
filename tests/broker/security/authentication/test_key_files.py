"""Keys as settings name them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from broker.security.authentication.key_files import KEY_BYTES_MAX, read_key

KEY = bytes(range(40))
TEXT = base64.b64encode(KEY).decode()


def test_key_is_read_from_each_form(tmp_path: Path) -> None:
    path = tmp_path / "a key"
    path.write_bytes(KEY)
    quoted = str(path).replace(" ", "%20")
    for text in (str(path), f"file:{path}", f"file://{quoted}", f"data:;base64,{TEXT}"):
        assert read_key(text) == KEY, text
    assert read_key(f"data:application/octet-stream;base64,{TEXT}") == KEY
    assert read_key("data:,a%20b") == b"a b"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("/no/such/file", "No such file"),
        ("hunter2" * 10, "No such file"),
        ("hunter2" * 1000, "File name too long"),
        ("file:///no/such/file", "No such file"),
        ("data:;base64,%%%", "no base64"),
        ("data:hunter2", "needs a comma"),
        ("file:/", "cannot be read"),
    ],
)
def test_error_gives_the_reason_and_not_the_text(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        read_key(text)
    assert "hunter2" not in str(caught.value)


def test_empty_and_endless_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "long").write_bytes(b"x" * (KEY_BYTES_MAX + 1))
    for name, reason in (("empty", "empty"), ("long", "more than")):
        with pytest.raises(ValueError, match=reason):
            read_key(str(tmp_path / name))
