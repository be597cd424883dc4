"""The token of a job: the secret by which its processes authenticate each other.

The token also says whether the processes encrypt their connections. So two sides that know the
token always agree on encryption, and no third process can make them omit it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from tfhvd.errors import InvalidSettingError, UnavailableError

SETTING = "TFHVD_ENCRYPT"

_ENCRYPTS = "tls-"  # the beginning of a token that asks for encryption
_BYTES = 16


def new(environ: Mapping[str, str]) -> str:
    """Returns a new random token.

    Args:
        environ: the environment, with the setting for encryption.

    Raises:
        InvalidSettingError: if the setting is neither "0" nor "1".
        UnavailableError: if this Python cannot encrypt.
    """
    asked = environ.get(SETTING, "0")
    if asked not in ("0", "1"):
        raise InvalidSettingError(f"{SETTING} must be 0 or 1. Received: {asked!r}")
    if asked == "0":
        return secrets.token_hex(_BYTES)
    from tfhvd.network import tls  # loads OpenSSL, which takes longer than the start of an agent

    try:
        tls.check()
    except OSError as error:
        raise UnavailableError(
            f"--encrypt ({SETTING}=1): {error}. Use a Python whose OpenSSL has it, or leave out "
            "--encrypt in a network that you trust"
        ) from error
    return _ENCRYPTS + secrets.token_hex(_BYTES)


def encrypts(token: str) -> bool:
    """Returns whether the connections with this token are encrypted."""
    return token.startswith(_ENCRYPTS)
