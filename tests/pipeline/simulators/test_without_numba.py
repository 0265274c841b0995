"""Where numba is not installed everything answers the same, and says that it takes longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]

SCRIPT = """
import sys
sys.modules["numba"] = None  # what a missing package looks like to an import
from pipeline.simulators.generators import zipf
from pipeline.simulators.policies import POLICIES
from pipeline.simulators.replay import replay
from pipeline.simulators.stack_distances import miss_ratios, stack_distances
trace = zipf(1.0, 1000, 5000, 7)
print([replay(policy, trace, 100).misses for policy in POLICIES], miss_ratios(stack_distances(trace), [100]))
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True)


def test_the_same_answers_and_one_warning() -> None:
    pytest.importorskip("numba")
    without = run(SCRIPT)
    with_numba = run(SCRIPT.replace('sys.modules["numba"] = None', ""))
    assert without.stdout == with_numba.stdout != ""
    assert without.stderr.count("RuntimeWarning: numba is not installed: ") == 1
    assert with_numba.stderr == ""
