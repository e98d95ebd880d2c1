"""Head and first piece of a response in one write."""

from collections.abc import Callable

import pytest

from api.server.joined_writes import HeadJoiningTransport

HEAD, BODY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", b"ok"


class Recorder:
    """A transport and an event loop that record what they are asked for."""

    def __init__(self) -> None:
        self.done: list[bytes | str] = []
        self.next_turn: list[Callable[[], None]] = []

    def write(self, data: bytes) -> None:
        if self.is_closing():
            raise RuntimeError("the handler is closed")  # as uvloop does
        self.done.append(data)

    def write_eof(self) -> None:
        self.done.append("end")

    def close(self) -> None:
        self.done.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.done

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.next_turn.append(callback)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def joining(recorder: Recorder) -> HeadJoiningTransport:
    return HeadJoiningTransport(recorder, recorder)  # type: ignore[arg-type]


def test_a_head_and_the_body_behind_it_are_one_write(
    recorder: Recorder, joining: HeadJoiningTransport
) -> None:
    for piece in (HEAD, BODY, BODY):
        joining.write(piece)
    recorder.next_turn[0]()
    assert recorder.done == [HEAD + BODY, BODY]


def test_a_head_whose_body_comes_later_is_sent_in_the_next_turn(
    recorder: Recorder, joining: HeadJoiningTransport
) -> None:
    joining.write(HEAD)
    assert recorder.done == []
    recorder.next_turn[0]()
    joining.write(BODY)
    assert recorder.done == [HEAD, BODY]


def test_a_head_of_a_connection_that_was_lost_is_dropped(
    recorder: Recorder, joining: HeadJoiningTransport
) -> None:
    joining.write(HEAD)
    recorder.close()
    recorder.next_turn[0]()
    assert recorder.done == ["closed"]


def test_several_pieces_at_once_follow_the_head(
    recorder: Recorder, joining: HeadJoiningTransport
) -> None:
    joining.write(memoryview(HEAD))
    joining.writelines([BODY, memoryview(BODY)])
    assert recorder.done == [HEAD + 2 * BODY]


@pytest.mark.parametrize(("end", "ends"), [("close", "closed"), ("write_eof", "end")])
def test_a_head_without_body_is_sent_before_the_end(
    recorder: Recorder, joining: HeadJoiningTransport, end: str, ends: str
) -> None:
    joining.write(HEAD)
    getattr(joining, end)()
    recorder.next_turn[0]()
    assert recorder.done == [HEAD, ends]
    assert joining.is_closing() == recorder.is_closing()
