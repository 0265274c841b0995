"""The tutorials' programs do what their pages say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import pytest

from tests.vectors.__main__ import main

TUTORIALS: Final = Path(__file__).resolve().parent.parent / "docs" / "tutorials"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", (TUTORIALS / page).read_text(encoding="utf-8"), re.M | re.S
    )


def test_commands_install_from_a_path_into_a_folder_that_pytest_leaves_out() -> None:
    commands = "".join(blocks("test_an_application.md", ""))
    # Magnetar is in no package index, and pytest collects the tests of packages in the folder that it starts in.
    assert "install 'magnetar[" not in commands
    assert "venv .venv\n" in commands


def test_tests_of_the_tutorial_pass_and_leave_a_backlog(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    *named_blocks, policy = blocks("test_an_application.md", "python")
    for block in named_blocks:
        name, _, text = block.partition("\n")
        files[name] = files.get(name, "") + text
    assert set(files) == {"# shop.py", "# test_shop.py"}
    for name, text in files.items():
        (tmp_path / name.removeprefix("# ")).write_text(text, encoding="utf-8")
    printed = _printed_by_tests_in(tmp_path)
    assert "3 passed" in printed, printed[-8000:]
    left = r"test_order_survives_a_lost_receipt: topic-\w+, subscription kitchen: (\d messages?)"
    assert re.findall(left, printed) == ["2 messages"]

    # The tutorial then gives this test another fixture, and begins it with a line that sets a policy.
    head = "def test_order_survives_a_lost_receipt(client, pulsar_topic, pulsar_broker):\n"
    assert head in files["# test_shop.py"]
    longer = head.replace("):", ", pulsar_namespace):") + f"    {policy.strip()}\n"
    (tmp_path / "test_shop.py").write_text(files["# test_shop.py"].replace(head, longer), encoding="utf-8")
    printed = _printed_by_tests_in(tmp_path)
    assert "3 passed" in printed, printed[-8000:]
    assert re.findall(left, printed) == ["1 message"]


def _printed_by_tests_in(folder: Path) -> str:
    """Runs pytest there with Magnetar's plugin, and returns its output."""
    named = [] if "magnetar" in entry_points(group="pytest11").names else ["-p", "magnetar.kit.pytest_plugin"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        *named,
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        str(folder),
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_script_of_the_tutorial_passes_and_fails_as_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks("study_the_cache.md", "json")
    script = json.loads(block.replace("\n", ""))
    path = tmp_path / "script.jsonl"
    path.write_text(json.dumps(script) + "\n", encoding="utf-8")
    assert main([str(path)]) == 0
    script["config"]["max_requeue"] = 0
    path.write_text(json.dumps(script) + "\n", encoding="utf-8")
    assert main([str(path)]) == 1
    printed = capsys.readouterr().out
    assert "1 passed, 0 failed" in printed
    assert "script.jsonl two_readers op 2 " in printed
    assert "result: expected [0, 0], got [1, 10]" in printed


def test_load_of_the_tutorial_is_a_program() -> None:
    (program,) = blocks("size_a_cache.md", "python")
    compile(program, "load.py", "exec")
