"""Follows redirects of HTTP; credentials stay with the origin that they were given for."""

from __future__ import annotations

import ssl
from http.client import HTTPMessage
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

_PORTS = {"http": 80, "https": 443}
_CARRIED = frozenset({"accept", "user-agent"})
"""Headers that go along to another origin; every other one may be a credential."""


class _Redirects(HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0917 - the base class's signature
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme not in _PORTS:  # urllib would follow ftp: too
            raise HTTPError(
                req.full_url, code, f"a redirect to {origin(newurl)}, which is not HTTP", headers, fp
            )
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and origin(newurl) != origin(req.full_url):
            made.headers = {name: value for name, value in made.headers.items() if name.lower() in _CARRIED}
        return made


def opener(url: str) -> OpenerDirector:
    """What opens requests to this address, and to those that it redirects to."""
    if not url.startswith("https:"):
        return build_opener(_Redirects)
    return build_opener(_Redirects, HTTPSHandler(context=ssl.create_default_context()))


def origin(url: str) -> str:
    """Scheme, host and port of an address, in one spelling; never what stands before ``@``, which may be a password."""
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme)
    return f"{parts.scheme}://{(parts.hostname or '').lower()}" + (f":{port}" if port else "")
