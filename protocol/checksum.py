"""`crc32c` from the extension module of the package of that name, without the rest of the package.

The package's `__init__` reads its own version out of the installed packages' metadata: 30 modules, 15 ms of every start.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from crc32c import crc32c as crc32c


def _load() -> ModuleType:
    package = find_spec("crc32c")
    paths = None if package is None else package.submodule_search_locations
    spec = None if paths is None else PathFinder.find_spec("crc32c._crc32c", paths)
    if spec is None or spec.loader is None:
        # A version that is built in another way: slower to import, with the same function.
        import crc32c

        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    crc32c = _load().crc32c
