"""Starts a Prometheus for tests, and asks it for the data of panels."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.compose.__main__ import Failed, wait_for
from tests.compose.boards import Query, queries
from tests.support.ports import free_port

SCRAPED_S: Final = 3
"""Interval of the scrapes, and the time that each may take on a busy machine."""
ASKERS: Final = 4
"""Queries that are asked at a time."""


class NotUnderstood(Exception):
    """A query that is no PromQL (400), or that Prometheus cannot carry out on these series (422)."""


class Prometheus:
    """A server that scrapes by a file of ours and answers queries."""

    def __init__(self, folder: Path, config: str) -> None:
        """`config` is the text of its file; `folder` takes that and the samples."""
        binary = shutil.which("prometheus")
        if binary is None:
            pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        (folder / "prometheus.yml").write_text(config.replace("PROMETHEUS", f"127.0.0.1:{self._port}"))
        self._command = [
            binary,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]

    @contextlib.contextmanager
    def running(self) -> Iterator[Prometheus]:
        """Runs the server until the block ends."""
        process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        try:
            yield self
        finally:
            stop(process)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Returns the series of an instant query whose value is a number; a quotient of zeros is none."""
        result: list[dict[str, Any]] = self._asked("query", query=expression)["result"]
        return [series for series in result if not math.isnan(float(series["value"][1]))]

    def values(self, selector: str, label: str) -> list[str]:
        """Returns the values of a label, as Grafana asks for those of a variable."""
        matched = {"match[]": selector} if selector else {}
        found: list[str] = self._asked(f"label/{label}/values", **matched)
        return found

    def wait_for_targets(self, count: int) -> None:
        """Waits until `count` targets have answered a scrape."""
        wait_for(lambda: len(self.query("up == 1")) == count, 120, f"first scrapes of {count} targets")

    def without_data(
        self, folder: Path, seconds: float, *, leave_out: str = ""
    ) -> tuple[list[Query], list[Query]]:
        """Returns all queries of the boards but one, and those that have no data after being asked for a while."""
        found = queries(folder, self.values)
        every = list(dict.fromkeys(query for query in found if query.board != leave_out))
        left = list(every)

        def all_have_data() -> bool:
            with ThreadPoolExecutor(ASKERS) as pool:
                found = list(pool.map(self._has_data, left))
            left[:] = [one for one, has_data in zip(left, found, strict=True) if not has_data]
            return not left

        with contextlib.suppress(Failed):
            wait_for(all_have_data, seconds, "data of every panel")
        return every, left

    def _has_data(self, one: Query) -> bool:
        try:
            return bool(self.query(one.expression))
        except NotUnderstood:
            return False

    def _asked(self, path: str, **parameters: str) -> Any:
        """Returns the data of an answer. Raises NotUnderstood, and OSError while Prometheus starts."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in (400, 422):
                raise
            raise NotUnderstood(f"{parameters}: {error.read().decode()}") from None
        assert found["status"] == "success"
        return found["data"]


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that a test has started."""
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
