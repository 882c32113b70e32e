"""``python -m bench.bare MODULE ARGUMENTS`` runs a module that needs only some names of safewrite.

``import safewrite`` brings boto3 and PyArrow along, a second of CPU and more.  A proxy has no use for
them, and the tests start hundreds of proxies.
"""

from __future__ import annotations

import runpy
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec


def main() -> None:
    """Replace safewrite by a package without its ``__init__``, and run the module as a program."""
    found = find_spec("safewrite")
    assert found is not None
    bare = ModuleSpec("safewrite", None, is_package=True)
    bare.submodule_search_locations = found.submodule_search_locations
    sys.modules["safewrite"] = module_from_spec(bare)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
