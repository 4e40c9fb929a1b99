"""HTTPS as the small client speaks it (client.py)."""

from __future__ import annotations

import http.client
import ssl


class Https(http.client.HTTPSConnection):
    """With the name the certificate is checked for, which need not be the address."""

    def __init__(
        self, host: str, port: int, timeout: float, tls: ssl.SSLContext, name: str
    ) -> None:
        super().__init__(host, port, timeout=timeout, context=tls)
        self._tls, self._name = tls, name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)
