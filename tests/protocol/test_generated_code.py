"""The generated code is what the .proto files say."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PROTOS = sorted(path.stem for path in (REPOSITORY / "protocol").glob("*.proto"))


@pytest.mark.skipif(
    importlib.util.find_spec("grpc_tools") is None or importlib.util.find_spec("mypy_protobuf") is None,
    reason="grpcio-tools and mypy-protobuf are development dependencies and not installed here",
)
@pytest.mark.parametrize("name", PROTOS)
def test_generated_code_is_current(tmp_path: Path, name: str) -> None:
    plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{REPOSITORY}", f"--python_out={tmp_path}"]
    command += [f"--plugin=protoc-gen-mypy={plugin}", f"--mypy_out={tmp_path}", f"protocol/{name}.proto"]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    for file in (f"{name}_pb2.py", f"{name}_pb2.pyi"):
        fresh, committed = tmp_path / "protocol" / file, REPOSITORY / "protocol" / file
        assert fresh.read_bytes() == committed.read_bytes(), f"regenerate protocol/{file}"
