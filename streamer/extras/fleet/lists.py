"""Where a director has its replicas from. In: addresses, URLs of lists. Out: a roster's addresses.

A list is what another director serves at /v1/replicas. It is read again every READ_S. One that
cannot be read changes nothing: the last one holds.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence

import anyio
import anyio.to_thread
import msgspec

from streamer.extras.fleet.director import LIST
from streamer.extras.fleet.roster import Roster, fetch

READ_S = 1.0


class Listed(msgspec.Struct):
    """One replica of a list; its other fields are for people."""

    address: str
    is_leaving: bool


_decode = msgspec.json.Decoder(list[Listed]).decode


async def follow(roster: Roster, sources: Sequence[str], tls: ssl.SSLContext | None) -> None:
    """Keep `roster` to what `sources` say; until cancelled. Each is ws://HOST:PORT of a replica, or
    http://HOST:PORT of a director."""
    lists: dict[str, list[Listed]] = {s: [] for s in sources if s.startswith("http")}
    fixed = [s.rstrip("/") for s in sources if s not in lists]
    while True:
        for source in lists:
            try:
                url = source.rstrip("/").removesuffix(LIST) + LIST
                lists[source] = _decode(await anyio.to_thread.run_sync(fetch, url, tls))
            except (OSError, msgspec.MsgspecError):
                continue
        listed = [each for found in lists.values() for each in found]
        roster.set([*fixed, *(each.address for each in listed)])
        leaving = {each.address for each in listed if each.is_leaving}
        for each in listed:  # one that comes back under its address is leaving no more
            roster.leave(each.address, each.address in leaving)
        await anyio.sleep(READ_S)
