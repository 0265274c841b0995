"""The console's pure modules in Node: texts of amounts, addresses, events of a stream, the geometry of the strip.

The modules are copied, because Node asks for a `package.json` beside them that browsers have no use for.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.console.test_files import PAGES

MODULES = Path(__file__).parent / "modules"


@pytest.mark.peer
def test_pure_modules_in_node(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node.js 20 or newer")
    shutil.copytree(PAGES, tmp_path / "pages")
    shutil.copytree(MODULES, tmp_path / "modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    tests = sorted(str(path) for path in (tmp_path / "modules").glob("*.test.js"))
    assert tests
    done = subprocess.run([node, "--test", *tests], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 0" not in done.stdout
