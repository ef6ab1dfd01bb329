"""The address of a server: its URL and key, from arguments or the environment, checked before anything is sent."""

import os
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit


@dataclass(frozen=True, slots=True)
class Address:
    """Where requests go, and the key they carry. Only `Address.of` makes one."""

    url: str
    """Without a slash at its end; paths are put after it."""
    api_key: str | None = field(default=None, repr=False)
    loopback: bool = False

    @classmethod
    def of(cls, url: str | None, api_key: str | None) -> "Address":
        """The address: arguments first, then `RUNWIRE_URL`, `RUNWIRE_PORT` and `RUNWIRE_API_KEY`.

        Raises `ValueError`, which repeats neither a key nor what a URL may hold of one.
        """
        given = (url or os.environ.get("RUNWIRE_URL") or "").strip()
        if not given:
            given = f"http://127.0.0.1:{os.environ.get('RUNWIRE_PORT') or 8080}"
        parts = _parts(given)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = "" if parts.port is None else f":{parts.port}"
        key = (os.environ.get("RUNWIRE_API_KEY") or "") if api_key is None else api_key
        whole = f"{parts.scheme.lower()}://{host}{port}{parts.path.rstrip('/')}"
        return cls(whole, _key(key), _is_loopback(parts.hostname or ""))


def _parts(url: str) -> SplitResult:
    wanted = "it must look like http://127.0.0.1:8080 or https://runwire.example"
    if len(url) > 2048 or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError(f"The server's URL holds characters that a URL cannot have: {wanted}.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"The server's URL cannot be read: {wanted}.") from None
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"The server's URL cannot be used: {wanted}.")
    if "@" in parts.netloc:
        raise ValueError("The server's URL holds a user or password; give a key as `api_key` or RUNWIRE_API_KEY.")
    if parts.query or parts.fragment:
        raise ValueError(f"The server's URL has a query or a fragment: {wanted}.")
    return parts


def _key(key: str) -> str | None:
    text = key.strip()
    if not text.isascii() or not text.isprintable():
        raise ValueError("The API key holds characters that a key cannot have (`api_key` or RUNWIRE_API_KEY).")
    return text or None


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
