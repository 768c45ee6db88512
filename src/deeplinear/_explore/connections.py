"""Connections to the server: bounded in number, in the time a request takes to arrive and in that an answer waits."""

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 400
"""Most connections that are served; more are told to come back, and twice as many are closed at once."""

SLOWEST_REQUEST = 15.0
"""Most seconds from the first byte of a request to its last, or until the first byte of a new connection."""

SLOWEST_READER = 60.0
"""Most seconds in which an answer that has been sent may stay unread."""


class Impatient(H11Protocol):
    """A connection that is closed when its other side neither asks nor reads."""

    _arriving: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        if len(self.connections) > 2 * MOST:
            transport.abort()
        elif len(self.connections) > MOST:
            self.app = _too_many
        self._arriving = self.loop.call_later(SLOWEST_REQUEST, self._hang_up)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        if self._arriving is None:
            self._arriving = self.loop.call_later(SLOWEST_REQUEST, self._hang_up)
        super().data_received(data)
        is_between = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        if is_between or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._arrived()

    def pause_writing(self) -> None:
        """Begin to wait for the other side to read."""
        super().pause_writing()
        self._unread = self.loop.call_later(SLOWEST_READER, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        super().resume_writing()
        self._was_read()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._arrived()
        self._was_read()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; a request in the middle of which it came is answered by nothing else."""
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        super().send_400_response(msg)

    def _arrived(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _was_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _hang_up(self) -> None:
        self._arriving = None
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0] and not self.transport.is_closing():
            self.transport.write(_LATE)
        self.transport.close()


def _sentence(text: str) -> bytes:
    return json.dumps({"error": text, "field": None}).encode()


def _late() -> bytes:
    body = _sentence(f"a request must arrive within {SLOWEST_REQUEST:.0f} s")
    head = (
        "HTTP/1.1 408 Request Timeout",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + body


_LATE = _late()


async def _too_many(scope: dict[str, object], receive: object, send: object) -> None:
    """Answer instead of the application."""
    assert callable(send)
    body = _sentence(f"more than {MOST} connections are open already; try again when some are closed")
    headers = [(b"content-type", b"application/json"), (b"connection", b"close"), (b"retry-after", b"2")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
