"""The example with tables, and the notebooks, run as their readers run them: in processes of their own.

They need nothing but time (`peer`): five sessions of Spark start.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LIMIT_S = 800
pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(900)]


def test_tables_have_each_row_once() -> None:
    """Also the fixture `pulsar_spark`, which these tests use."""
    pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    named = [] if "magnetar" in entry_points(group="pytest11").names else ["-p", "magnetar.kit.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", *named, "-p", "no:cacheprovider", "."]
    done = subprocess.run(
        command, cwd=EXAMPLES / "tables", capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert "3 passed" in done.stdout, done.stdout[-8000:] + done.stderr[-2000:]


def run_notebook(name: str) -> list[str]:
    """Runs a notebook in a kernel; returns the text that each code cell printed. CellExecutionError."""
    nbformat: Any = pytest.importorskip("nbformat")
    nbclient: Any = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    folder = EXAMPLES / "notebooks"
    notebook = nbformat.read(folder / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "a notebook is committed without outputs"
    nbclient.NotebookClient(
        notebook, timeout=LIMIT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    return [
        "".join(output.get("text", "") for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_notebook_tells_a_cache_from_its_record() -> None:
    said = run_notebook("cache_from_its_record")
    assert "hit ratio 33.50 %: 24,000 entries read" in said[1]
    assert "public/default/persistent/audit" in said[2]
    assert "binding: managedLedgerCacheSizeMB" in said[4]


def test_notebook_streams_messages_into_a_table() -> None:
    said = run_notebook("stream_to_a_table")
    assert "500 rows" in said[3]
    assert "750 rows, 750 orders" in said[4]
