"""The token of a job: the secret by which its processes know each other.

It also says whether they encrypt what they say to each other. So both sides of a connection agree
on that wherever both know the token, and nobody else can talk them out of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from tfhvd.errors import InvalidSettingError, UnavailableError

SETTING = "TFHVD_ENCRYPT"

_ENCRYPTS = "tls-"  # how a token begins whose connections are encrypted
_BYTES = 16


def new(environ: Mapping[str, str]) -> str:
    """Returns a token that nobody knows.

    Args:
        environ: whose setting says whether to encrypt.

    Raises:
        InvalidSettingError: the setting is neither "0" nor "1".
        UnavailableError: this Python cannot encrypt.
    """
    asked = environ.get(SETTING, "0")
    if asked not in ("0", "1"):
        raise InvalidSettingError(f"{SETTING} must be 0 or 1. Received: {asked!r}")
    if asked == "0":
        return secrets.token_hex(_BYTES)
    from tfhvd.network import tls  # loads OpenSSL, which takes longer than all of an agent

    try:
        tls.check()
    except OSError as error:
        raise UnavailableError(
            f"--encrypt ({SETTING}=1): {error}. Use a Python whose OpenSSL has it, or leave out "
            "--encrypt in a network that you trust"
        ) from error
    return _ENCRYPTS + secrets.token_hex(_BYTES)


def encrypts(token: str) -> bool:
    """Whether the connections of those that know a token are encrypted."""
    return token.startswith(_ENCRYPTS)
