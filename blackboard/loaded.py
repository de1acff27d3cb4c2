"""The folders that handlers are loaded from, as packages: `blackboard.loaded.FOLDER`.

The name of a package says where its folder is. So two folders called `jobs` do not meet, neither
takes the name of an installed package, and any Python process that has this package can import
what another one has loaded. That is what `pickle` needs, and with it `multiprocessing`: a process
that it spawns gets the names of a function and its module, and imports them.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

__path__: list[str] = []  # what makes a module a package; its parts are found by the finder below

_PREFIX = f"{__name__}."


def package_name(folder: str) -> str:
    """The name of the package that a folder is, by its absolute path."""
    # Any text is good as a module's name, but for the dot.
    return _PREFIX + folder.replace("%", "%25").replace(".", "%2E")


class _Finder:
    """Finds the packages of this name, as Python's import asks for them."""

    @staticmethod
    def find_spec(
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG004 - as the protocol has it
        target: ModuleType | None = None,  # noqa: ARG004
    ) -> ModuleSpec | None:
        name = fullname.removeprefix(_PREFIX)
        if name == fullname or "." in name:
            return None
        folder = Path(name.replace("%2E", ".").replace("%25", "%"))
        if (start := folder / "__init__.py").is_file():
            return spec_from_file_location(
                fullname, start, submodule_search_locations=[str(folder)]
            )
        if not folder.is_dir():
            return None
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec


sys.meta_path.append(_Finder)
