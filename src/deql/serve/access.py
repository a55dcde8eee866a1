"""Who may ask: those who show the token; and, where there is none, those who call the server by no foreign name."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re

__all__ = ["is_local", "may_be_called", "may_pass"]


def is_local(host: str) -> bool:
    """Whether a host is this machine, seen from itself.

    Examples
    --------
    >>> is_local("localhost"), is_local("127.0.0.1"), is_local("::1"), is_local("0.0.0.0"), is_local("127.evil.com")
    (True, True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def may_be_called(host: bytes, own: str) -> bool:
    """Whether the Host header of a request without a token is one that no web page can make up.

    A page of another site reaches this server by having that site's name point here. An address is nobody's name,
    ``localhost`` neither, and the name that the server was told to listen at is its own.

    Examples
    --------
    >>> [may_be_called(host, "shop.lan") for host in (b"localhost:8000", b"10.0.0.7", b"[::1]:80", b"Shop.lan:8000")]
    [True, True, True, True]
    >>> may_be_called(b"evil.example", "shop.lan"), may_be_called(b"10.0.0.7.evil.example", "0.0.0.0")
    (False, False)
    """
    name = re.sub(r":\d*$", "", host.decode("latin-1")).lower()
    if name in ("", "localhost", own.lower()):  # browsers always send one
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def may_pass(authorization: bytes, token: bytes, *, basic: bool = True) -> bool:
    """Whether a header shows the token: as Bearer, or as the password of Basic, which browsers ask people for.

    The time it takes tells nothing about the token. A browser also sends Basic where another site sends it, so what
    changes something should not accept that.

    Examples
    --------
    >>> may_pass(b"Bearer tea", b"tea"), may_pass(b"Basic " + base64.b64encode(b"me:tea"), b"tea")
    (True, True)
    >>> may_pass(b"Bearer te", b"tea"), may_pass(b"Basic !", b"tea"), may_pass(b"", b"tea")
    (False, False, False)
    """
    scheme, _, shown = authorization.partition(b" ")
    shown = shown.strip(b" ")
    if scheme.lower() == b"basic" and basic:
        try:
            shown = base64.b64decode(shown, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return False
    elif scheme.lower() != b"bearer":
        return False
    return hmac.compare_digest(shown, token)
