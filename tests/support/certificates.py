"""Certificates for one test run, by the `openssl` command: an authority, a server for 127.0.0.1, a client."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


class Certificates:
    """Each name has a `.pem` (certificate) and a `.key`, below `folder`."""

    def __init__(self, folder: Path) -> None:
        """For use inside a test, which is skipped where `openssl` is missing."""
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority"),
            *("-keyout", "authority.key", "-out", "authority.pem"),
        )
        self.authority = folder / "authority.pem"
        self.server = self._issue("server")
        self.client = self._issue("client")

    def key(self, certificate: Path) -> Path:
        return certificate.with_suffix(".key")

    def locked_key(self, password: str) -> Path:
        """The server's, behind a password."""
        self._openssl(
            "pkey", "-in", "server.key", "-aes256", "-passout", f"pass:{password}", "-out", "locked.key"
        )
        return self._folder / "locked.key"

    def _issue(self, name: str) -> Path:
        (self._folder / "extensions").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        self._openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "authority.pem", "-CAkey", "authority.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", "extensions", "-out", f"{name}.pem"),
        )
        return self._folder / f"{name}.pem"

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self._folder, check=True, capture_output=True)
