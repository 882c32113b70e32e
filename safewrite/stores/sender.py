"""Sends a request once over urllib3, through proxies and with the authorities that botocore would use; fails as botocore does."""

from __future__ import annotations

import socket
from copy import copy
from typing import Any

from safewrite.stores.call_limit import CONNECT_S, REQUEST_S, bounded

_SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]
_ORIGINS_MAX = 64
"""Hosts to which a sender keeps connections: each bucket on AWS has one of its own."""


class StoreAnswer:
    """An answer: what botocore's parser of refusals asks of one, and the body."""

    __slots__ = ("_content", "headers", "raw", "status_code", "url")

    def __init__(self, url: str, raw: Any) -> None:
        self.url, self.raw = url, raw
        self.status_code: int = raw.status
        self.headers: Any = raw.headers
        self._content: bytes | None = None

    @property
    def content(self) -> bytes:
        """The whole body."""
        if self._content is None:
            self._content = b"".join(self.raw.stream())
        return self._content


class Sender:
    """The connections of one client.

    botocore's ``URLLib3Session`` does the same in half as much time again: it looks for proxy, pool and certificates at each request.
    """

    def __init__(self, endpoint: str, verify: bool | str, connections: int) -> None:
        from botocore.awsrequest import AWSHTTPConnectionPool, AWSHTTPSConnectionPool
        from botocore.httpsession import ProxyConfiguration, create_urllib3_context
        from botocore.utils import get_environ_proxies
        from urllib3 import Retry, Timeout

        proxies = ProxyConfiguration(get_environ_proxies(endpoint))
        self.connections = connections
        self._verify = verify
        proxy_url: Any = proxies.proxy_url_for(endpoint)
        self._proxy_url: str | None = proxy_url
        self._proxy_headers = None if proxy_url is None else proxies.proxy_headers_for(proxy_url)
        self._settings: dict[str, Any] = {
            "num_pools": _ORIGINS_MAX,
            "maxsize": connections,
            "timeout": Timeout(connect=CONNECT_S, read=REQUEST_S),
            "socket_options": _SOCKET_OPTIONS,
            "ssl_context": create_urllib3_context(),
        }
        # botocore's connections, for they wait for 100-continue; bounded in time.
        self._classes = {
            "http": bounded(AWSHTTPConnectionPool),
            "https": bounded(AWSHTTPSConnectionPool),
        }
        self._once = Retry(False)
        self._connect()

    def _connect(self) -> None:
        from urllib3 import PoolManager, proxy_from_url

        self._manager: Any = (
            PoolManager(**self._settings)
            if self._proxy_url is None
            else proxy_from_url(self._proxy_url, proxy_headers=self._proxy_headers, **self._settings)
        )
        self._manager.pool_classes_by_scheme = self._classes
        self._pools: dict[str, Any] = {}

    def again(self) -> Sender:
        """One that sends the same way over connections of its own."""
        made = copy(self)
        made._connect()  # noqa: SLF001 - of the same class
        return made

    def close(self) -> None:
        """Close the connections that are idle."""
        self._pools = {}
        self._manager.clear()

    def send(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None, *, in_parts: bool
    ) -> StoreAnswer:
        """Send a request; the body of its answer is read by who asked, where ``in_parts``.

        Raises:
            BotoCoreError: there is no answer, or a part of one.
        """
        scheme, _, rest = url.partition("://")
        host, _, path = rest.partition("/")
        forwarded = self._proxy_url is not None and scheme == "http"
        try:
            raw = self._pool(scheme, host).urlopen(
                method,
                url if forwarded else f"/{path}",
                body=body,
                headers=headers,
                retries=self._once,
                assert_same_host=False,
                preload_content=False,
                decode_content=False,
                enforce_content_length=False,
            )
            answer = StoreAnswer(url, raw)
            if not in_parts:
                answer.content  # noqa: B018 - it is read here, where a failure has its meaning
        except Exception as error:
            raise _meaning(error, url, self._proxy_url) from error
        return answer

    def _pool(self, scheme: str, host: str) -> Any:
        origin = f"{scheme}://{host}"
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._manager.connection_from_url(origin)
            if scheme == "https" and self._verify:
                from botocore.httpsession import get_cert_path

                authorities: Any = self._verify
                pool.cert_reqs, pool.ca_certs = "CERT_REQUIRED", get_cert_path(authorities)
            if len(self._pools) >= _ORIGINS_MAX:
                self._pools = {}  # the manager closes those that were used longest ago
            self._pools[origin] = pool
        return pool


def _meaning(error: Exception, url: str, proxy_url: str | None) -> Exception:
    """The exception that botocore raises where urllib3 raises this one."""
    from botocore import exceptions
    from botocore.httpsession import mask_proxy_url
    from urllib3 import exceptions as raised

    if isinstance(error, raised.SSLError):
        return exceptions.SSLError(endpoint_url=url, error=error)
    if isinstance(error, raised.NewConnectionError | socket.gaierror):
        return exceptions.EndpointConnectionError(endpoint_url=url, error=error)
    if isinstance(error, raised.ProxyError):
        return exceptions.ProxyConnectionError(proxy_url=mask_proxy_url(str(proxy_url)), error=error)
    if isinstance(error, raised.ConnectTimeoutError):
        return exceptions.ConnectTimeoutError(endpoint_url=url, error=error)
    if isinstance(error, raised.ReadTimeoutError):
        return exceptions.ReadTimeoutError(endpoint_url=url, error=error)
    if isinstance(error, raised.ProtocolError):
        return exceptions.ConnectionClosedError(error=error, request=None, endpoint_url=url)
    return exceptions.HTTPClientError(error=error)
