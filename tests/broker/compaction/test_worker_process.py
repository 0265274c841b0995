"""The real process, and its end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from broker.compaction.passes import PassesSettings
from broker.compaction.worker_process import WorkerFailed, WorkerProcess
from tests.fakes.batches import batch, items_of, single

RULES = PassesSettings(retain_null_key=False, memory_bytes=1 << 20)


async def test_process_runs_both_passes() -> None:
    worker = await WorkerProcess.start(RULES)
    body = batch([("a", b"1"), ("b", b"2")])
    await worker.add([(0, body)])
    await worker.add([(1, memoryview(single("b", b"3")))])
    result = await worker.end_round()
    assert result is not None
    assert (result.fates, result.messages, result.kept) == (b"\x02\x01", 3, 2)
    (rewritten,) = await worker.rewrite([(0, body)])
    assert items_of(rewritten) == [(0, "a", b"1")]
    await worker.close()
    assert worker.returncode == 0


async def test_killed_process_fails_the_next_call() -> None:
    worker = await WorkerProcess.start(RULES)
    await worker.add([(0, single("a", b"1"))])
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerFailed):
        await worker.end_round()
    await worker.close()
    assert worker.returncode == -signal.SIGKILL


async def test_package_of_the_same_name_in_the_working_directory_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "__init__.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    worker = await WorkerProcess.start(RULES)
    await worker.add([(0, single("a", b"1"))])
    assert await worker.end_round() is not None
    await worker.close()
