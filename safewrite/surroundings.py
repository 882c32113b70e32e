"""Says what arguments leave to the environment of a process: variables of AWS, its files, authorities and proxies, as they are now."""

from __future__ import annotations

import hashlib
import os
import stat

_FILES = (("AWS_CONFIG_FILE", "~/.aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
_OLD_FILES = ("/etc/boto.cfg", "~/.boto")
"""Where botocore looks for keys last."""
CA_BUNDLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
_NAMES = frozenset({"REQUESTS_CA_BUNDLE", "BOTO_CONFIG", "BOTOCORE_EXPERIMENTAL__PLUGINS"})
_READ_BYTES_MAX = 2**20

Surroundings = tuple[object, ...]


def surroundings() -> Surroundings:
    """A mark that differs where another client would be made: one that signs otherwise, or asks another place or by another way.

    Files of settings are known by their content, for a tool may write new keys of the same length within a tick of the file
    system's clock; authorities by path, time and size.
    """
    found = tuple(sorted(pair for pair in os.environ.items() if _is_asked(pair[0])))
    named = dict(found)
    files = tuple(_file(named.get(name) or usual) for name, usual in _FILES)
    old = tuple(_file(name) for name in ((named["BOTO_CONFIG"],) if "BOTO_CONFIG" in named else _OLD_FILES))
    bundles = tuple(_file(named[name], read=False) for name in CA_BUNDLES if named.get(name))
    return found, files, old, bundles


def _is_asked(name: str) -> bool:
    return name.startswith("AWS_") or name in _NAMES or name[-6:].lower() == "_proxy"


def _file(name: str, *, read: bool = True) -> tuple[object, ...]:
    path = os.path.expandvars(os.path.expanduser(name))  # noqa: PTH111 - as botocore does, in this order
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path costs more than the look
        if not read or not stat.S_ISREG(found.st_mode) or found.st_size > _READ_BYTES_MAX:
            return (path, found.st_ino, found.st_mtime_ns, found.st_size)
        with open(path, "rb") as opened:  # noqa: PTH123 - as above
            return path, hashlib.sha256(opened.read()).digest()
    except (OSError, ValueError):
        return (path,)
