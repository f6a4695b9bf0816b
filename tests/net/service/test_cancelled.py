"""The last moments of a service: nothing begins any more, and who comes is told so."""

import anyio
from fake_session import opening
from far import MODEL, Slow

from streamer.core.link import wire
from streamer.net.link.server import VerifierServer
from streamer.net.realtime.server import PATH, RealtimeServer
from streamer.net.service.admission import Admission
from streamer.net.service.service import Address


async def test_where_the_run_is_cancelled_nobody_new_begins():
    """Tasks can be started no more, while sockets are read until they are closed: an edge that then
    opened a turn was an error in the log. Found by a schedule of tests/net/test_history.py."""
    admission = Admission((wire.PATH,), 2)
    server = VerifierServer(lambda turn: Slow(1e6), MODEL, admission)
    async with anyio.create_task_group() as group:
        await group.start(_run, server)
        assert not admission.is_draining
        group.cancel_scope.cancel()
    assert admission.is_draining


async def _run(server, task_status):
    await server.run(Address(port=0), task_status.started)


class Closed:
    """A socket that remembers how it was closed."""

    tenant = ""
    code = None

    async def close(self, code, reason=""):
        self.code = code


async def test_a_client_whose_handshake_was_under_way_is_sent_elsewhere():
    """It was admitted before SIGTERM, and arrives behind it."""
    admission = Admission((PATH,), 2)
    server = RealtimeServer(opening(), admission)
    admission.is_draining = True
    socket = Closed()
    await server.serve(socket, {})
    assert socket.code == 1012
    assert admission.num_sessions == 0
