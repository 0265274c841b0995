"""The sources of the process's "direct memory"."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.settings.errors import SettingsError
from foundation.settings.memory import direct_memory

MIB = 1 << 20


def control_group(root: Path, line: str, **limits: str) -> None:
    """`limits` has file paths below sys/fs/cgroup with `__` for `/` and `_` for `.`, and their texts."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(line + "\n")
    for name, text in limits.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("memory_max", "memory.max")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ("-Xms2g -Xmx2g -XX:MaxDirectMemorySize=4g", 4096 * MIB),
        ("-XX:MaxDirectMemorySize=512m", 512 * MIB),
        ("-XX:MaxDirectMemorySize=1048576", MIB),
        ("-XX:MaxDirectMemorySize=1g -XX:MaxDirectMemorySize=2G", 2048 * MIB),
    ],
)
def test_direct_memory_is_the_jvm_option_when_given(tmp_path: Path, options: str, size: int) -> None:
    control_group(tmp_path, "0::/", memory_max=str(64 * MIB))
    found = direct_memory({"PULSAR_MEM": options}, root=tmp_path)
    assert found.size == size
    assert found.source == "-XX:MaxDirectMemorySize of PULSAR_MEM"


@pytest.mark.parametrize("size", ["4gb", "", "0", "-1g", "lots"])
def test_malformed_size_is_refused_in_one_line(size: str) -> None:
    with pytest.raises(SettingsError, match=r"^environment PULSAR_MEM: -XX:MaxDirectMemorySize="):
        direct_memory({"PULSAR_MEM": f"-XX:MaxDirectMemorySize={size}"})


def test_direct_memory_is_the_lowest_limit_of_group_and_ancestors(tmp_path: Path) -> None:
    limits = {"a__memory_max": str(64 * MIB), "a__b__memory_max": "max", "a__b__c__memory_max": str(65 * MIB)}
    control_group(tmp_path, "0::/a/b/c", **limits)
    found = direct_memory({}, root=tmp_path)
    assert (found.mebibytes, found.source) == (64, "limit of the control group")


def test_limits_of_version_one_groups_are_read(tmp_path: Path) -> None:
    control_group(tmp_path, "7:cpu,memory:/x")
    path = tmp_path / "sys/fs/cgroup/memory/x/memory.limit_in_bytes"
    path.parent.mkdir(parents=True)
    path.write_text(str(32 * MIB))
    assert direct_memory({}, root=tmp_path).mebibytes == 32
    path.write_text(str(2**63 - 4096))
    assert direct_memory({}, root=tmp_path).source == "memory of the machine"


def test_direct_memory_is_the_machines_when_there_is_no_limit(tmp_path: Path) -> None:
    found = direct_memory({"PULSAR_MEM": "-Xmx1g"}, root=tmp_path)
    assert found.source == "memory of the machine"
    assert found.mebibytes > 64
