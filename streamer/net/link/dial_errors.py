"""Why there is no link. In: how a dial or link ended. Out: a line, and whether to try again."""

from __future__ import annotations

import os
import socket as sockets
import ssl

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus

from streamer.core.description import one_line
from streamer.net.link.dial import CONNECT_S

REFUSED_FOR_GOOD = (401, 403)  # this key, or this edge: no pause makes it another one
# A wrong address. Where a link has been up the address is right, and it may be again.
REFUSED_AT_FIRST = (400, 404)
NO_SUCH_HOST = (sockets.EAI_NONAME, getattr(sockets, "EAI_NODATA", sockets.EAI_NONAME))
NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")  # OpenSSL's words for plain text


class VerifierSilent(Exception):
    """The link is up and nothing is said on it."""


def is_final(error: Exception, was_linked: bool) -> bool:
    """Whether to connect again makes no sense, as it seems. It is tried all the same, seldom."""
    if isinstance(error, ssl.SSLCertVerificationError) or is_no_tls(error):
        return not was_linked
    if not isinstance(error, InvalidStatus):
        return False
    status = error.response.status_code
    return status in REFUSED_FOR_GOOD or (status in REFUSED_AT_FIRST and not was_linked)


def is_nobody(error: Exception) -> bool:
    """Whether nobody listens there, no way leads there, or the connection ends before a word."""
    is_refused = isinstance(error, OSError) and not isinstance(error, ssl.SSLError)
    return is_refused or _is_closed_at_once(error)


def is_no_tls(error: BaseException) -> bool:
    """Whether a wss:// address answered in plain text."""
    return isinstance(error, ssl.SSLError) and error.reason in NO_TLS


def first_of(group: ExceptionGroup) -> Exception:
    """What ended a link: a fault of the verifier's if there was one, else that it was cut."""
    flat = list(_flat(group))
    faults = [error for error in flat if not isinstance(error, ConnectionClosed)]
    return (faults or flat)[0]


def _flat(error: Exception) -> list[Exception]:
    if not isinstance(error, ExceptionGroup):
        return [error]
    return [one for part in error.exceptions for one in _flat(part)]


def why(error: BaseException) -> str:
    """One line for a person, whatever the other side says."""
    return one_line(_why(error))


def _why(error: BaseException) -> str:
    match error:
        case InvalidStatus():
            return _status(error)
        case ConnectionClosed(rcvd=None):
            return "the link was cut"
        case ConnectionClosed():
            assert error.rcvd is not None
            return f"the link was closed ({error.rcvd.reason or error.rcvd.code})"
        case TimeoutError():
            return f"no answer within {CONNECT_S:g} s"
        case ssl.SSLCertVerificationError():
            told = f"its certificate does not verify ({error.verify_message.rstrip('.')})"
            way = "name the PEM file of its authority with --cloud-ca, and the host as the "
            return f"{told}; {way}certificate does"
    if is_no_tls(error):
        ways = "give it --cert and --key, or take ws:// where the network is your own"
        return f"it does not speak TLS; {ways}"
    if _is_closed_at_once(error):
        return "it closes connections at once; give wss:// if it has a certificate"
    if isinstance(error, ConnectionResetError) and not error.errno:  # asyncio's word for it
        return "it ends the handshake of TLS; give ws:// if it has no certificate"
    if isinstance(error, InvalidHandshake):
        return f"it does not speak our protocol ({error})"
    if isinstance(error, sockets.gaierror) and error.errno in NO_SUCH_HOST:
        return f"{error.strerror}; check the host's name, and that there is a network"
    number = error.errno if isinstance(error, OSError) else None
    if number and number > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(number)  # asyncio names the address there, once more
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _status(error: InvalidStatus) -> str:
    """An HTTP answer in place of the upgrade."""
    status = error.response.status_code
    body = error.response.body.decode("utf-8", "replace").strip()
    if status == 401:
        cause = body[:200].partition(";")[0] or "wrong or missing key"
        return f"HTTP 401 ({cause}); give its key with --cloud-key or STREAMER_CLOUD_KEY"
    if status == 404 and "connect to /v1/realtime" in body:
        return "it is a `streamer serve`; give the address of a `streamer verifier`"
    return f"HTTP {status}" + (f" ({body[:200]})" if body else "")


def _is_closed_at_once(error: BaseException) -> bool:
    """Before a word was said: a balancer without a verifier, or TLS where we speak plainly."""
    return isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError)
