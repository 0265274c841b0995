"""Certificates that are read again: when, and what a file that cannot be used leaves behind."""

from __future__ import annotations

import ssl
from pathlib import Path

from foundation.tls.certificates import Certificates
from foundation.tls.errors import TlsError

S = 10**9


class Clock:
    now_ns = 0


class Stage:
    """One file; each context that is made is another object, and the text `bad` makes none."""

    def __init__(self, folder: Path, check_s: float) -> None:
        self.clock = Clock()
        self.lines: list[str] = []
        self.file = folder / "server.pem"
        self.made = 0
        self.write("one")
        self.certificates = Certificates(
            self._make,
            (self.file,),
            check_s=check_s,
            now_ns=lambda: self.clock.now_ns,
            warn=self.lines.append,
        )

    def write(self, text: str) -> None:
        # A new file in the place of the old one, as programs that renew certificates do it.
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.file)

    def _make(self) -> ssl.SSLContext:
        if self.file.read_text() == "bad":
            raise TlsError("the file is bad")
        self.made += 1
        return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def test_changed_file_is_read_at_the_next_look_and_not_before(tmp_path: Path) -> None:
    stage = Stage(tmp_path, check_s=300)
    first = stage.certificates.current()
    stage.write("two")
    stage.clock.now_ns = 300 * S - 1
    assert stage.certificates.current() is first
    stage.clock.now_ns = 300 * S
    second = stage.certificates.current()
    assert second is not first
    stage.clock.now_ns = 900 * S
    assert stage.certificates.current() is second
    assert stage.made == 2


def test_file_that_cannot_be_used_keeps_the_former_context_with_one_line(tmp_path: Path) -> None:
    stage = Stage(tmp_path, check_s=0)
    first = stage.certificates.current()
    stage.write("bad")
    assert stage.certificates.current() is first
    assert stage.certificates.current() is first
    assert stage.lines == ["! changed certificates are not used: the file is bad; the former ones stay"]
    stage.write("three")
    assert stage.certificates.current() is not first


def test_missing_file_counts_as_a_change_and_its_return_as_another(tmp_path: Path) -> None:
    stage = Stage(tmp_path, check_s=0)
    stage.file.rename(tmp_path / "away")
    stage.write("bad")
    first = stage.certificates.current()
    (tmp_path / "away").replace(stage.file)
    assert stage.certificates.current() is not first
