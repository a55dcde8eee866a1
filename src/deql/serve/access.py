"""Who may ask: those who call the server by a name of its own, or show its token."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re

__all__ = ["host_is_allowed", "shows_token"]


def host_is_allowed(host: bytes, own: str) -> bool:
    """Whether the Host header of a request without a token is one that no web page can make up.

    A page of another site reaches this server by having that site's name point here. An address is nobody's name,
    ``localhost`` neither, and the name that the server was told to listen at is its own.

    Examples
    --------
    >>> [host_is_allowed(host, "shop.lan") for host in (b"localhost:8000", b"10.0.0.7", b"[::1]:80", b"Shop.lan:8000")]
    [True, True, True, True]
    >>> host_is_allowed(b"evil.example", "shop.lan"), host_is_allowed(b"10.0.0.7.evil.example", "0.0.0.0")
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


def shows_token(authorization: bytes, token: bytes, *, basic: bool = True) -> bool:
    """Whether a header shows the token: as Bearer, or as the password of Basic, which browsers ask people for.

    The time it takes tells nothing about the token. A browser also sends Basic where another site sends it, so what
    changes something should not accept that.

    Examples
    --------
    >>> shows_token(b"Bearer tea", b"tea"), shows_token(b"Basic " + base64.b64encode(b"me:tea"), b"tea")
    (True, True)
    >>> shows_token(b"Bearer te", b"tea"), shows_token(b"Basic !", b"tea"), shows_token(b"", b"tea")
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
