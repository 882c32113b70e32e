"""Makes REST catalogs that take their credentials to no other origin.

PyIceberg's client (requests) drops ``Authorization`` on another host, and carries everything else along: headers of
``header.*``, and on 307 and 308 the body, in which the token endpoint gets ``client_secret``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from pyiceberg.catalog.rest import RestCatalog as OpenRestCatalog
from requests import RequestException

from safewrite.stores.call_limit import bound_session

if TYPE_CHECKING:
    from requests import Response, Session

_PORTS = {"http": 80, "https": 443}


class RedirectedElsewhereError(RequestException):
    """The catalog's address answers with a redirect to another origin."""


class RestCatalog(OpenRestCatalog):
    """PyIceberg's, whose session follows redirects within one origin only."""

    def _config_headers(
        self, session: Session
    ) -> None:  # the first step of every session, before a token is asked for
        guard(session)
        bound_session(session)  # the catalog's settings are asked for before its maker has it
        super()._config_headers(session)


def guard(session: Session) -> None:
    """Let a session follow redirects within one origin, and from plain HTTP to HTTPS of the same host; refuse others."""
    inner = session.get_redirect_target

    def target(resp: Response) -> str | None:
        found = inner(resp)
        if found is None:
            return None
        before, after = _origin(resp.url), _origin(urljoin(resp.url, found))
        upgrade = before[1:] == (after[1], 80) and before[0] == "http" and after[0::2] == ("https", 443)
        if before == after or upgrade:
            return found
        scheme, host, port = after
        resp.close()
        session.close()  # nobody else has it yet, or it may go on: its connections are opened again when they are needed
        raise RedirectedElsewhereError(
            f"{before[0]}://{before[1]}:{before[2]} redirects to {scheme}://{host}:{port}, and the catalog's credentials go to no "
            "other host. If that is the catalog, set its uri (or oauth2-server-uri) to that address"
        )

    session.get_redirect_target = target  # type: ignore[method-assign]


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme)
