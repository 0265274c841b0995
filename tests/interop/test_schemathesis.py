"""schemathesis sends generated requests to every route of `/openapi.json`; none may fail inside of the broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from broker.admin.http.request_classes import CONSOLE_EVENTS
from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]
COMMAND = Path(sys.executable).with_name("schemathesis")
EXAMPLES = 5
"""Generated requests of each route."""
SETTINGS = {"transactionCoordinatorEnabled": "true", "systemTopicEnabled": "true"}
# 501 is the answer to a request that is not built, 503 that of a service which is not enabled. Pulsar answers 500 to
# schemas that cannot be read; the log below tells these from errors that no handler expected.
EXPECTED = """\
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "501", "503"]

[[operations]]
include-path-regex = "^/admin/v2/schemas/"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "500", "501", "503"]
"""


@pytest.mark.skipif(not COMMAND.exists(), reason="needs schemathesis, pip install schemathesis")
def test_no_generated_request_fails_inside_of_the_broker(tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(EXPECTED, encoding="utf-8")
    with BrokerProcess(tmp_path, SETTINGS, memory=True) as broker:
        words = ["run", f"{broker.addresses.admin}/openapi.json", "--checks", "not_a_server_error"]
        # Shutting the broker down is a route too, and the console's stream ends when its reader leaves.
        words += ["--exclude-path", "/admin/v2/brokers/shutdown", "--exclude-path", CONSOLE_EVENTS]
        words += ["--phases", "fuzzing", "--workers", "1"]
        words += ["--max-examples", str(EXAMPLES), "--continue-on-failure", "--generation-database", "none"]
        done = subprocess.run(
            [COMMAND, *words, "--suppress-health-check", "all", "--no-color", "--request-timeout", "30"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=500,
        )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    # After the stop, which writes the rest of the log.
    assert not [line for line in broker.log_lines() if "Traceback" in line]
