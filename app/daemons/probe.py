"""Asks a controller of this machine whether it is ready."""

import http.client
from urllib.parse import urlsplit

PATIENCE_S = 2.0


def is_ready(api: str) -> bool:
    """Whether `/readyz` of this base URL says yes."""
    connection = http.client.HTTPConnection(urlsplit(api).netloc, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
