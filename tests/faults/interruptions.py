"""Twelve ways in which sending a batch is interrupted: at the machine that sends, on the way, at
the service.
"""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fault_proxy import FaultProxy
from running_site import API
from senders import PATIENCE_S, Sent, Story


def time_client_out(story: Story, sent: Sent) -> None:
    """Let the client reach its own limit."""
    with story.idle():
        status, told = story.run("submit", sent.model, sent.zipped, "--timeout", "0.5")
    assert status == 14 and "Come back with: perennial jobs watch job_" in told, told


def interrupt_client(story: Story, sent: Sent, number: signal.Signals, expected: int) -> None:
    """Send the client a signal while it follows the job."""
    with story.idle():
        process = story.command("submit", sent.model, sent.zipped)
        assert process.stderr is not None
        assert any(" queued" in line for line in process.stderr), "it did not follow its job"
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == expected


def press_ctrl_c(story: Story, sent: Sent) -> None:
    interrupt_client(story, sent, signal.SIGINT, 130)


def terminate_client(story: Story, sent: Sent) -> None:
    interrupt_client(story, sent, signal.SIGTERM, -signal.SIGTERM)


def kill_client(story: Story, sent: Sent) -> None:
    interrupt_client(story, sent, signal.SIGKILL, -signal.SIGKILL)


def cut_in_batch(story: Story, sent: Sent) -> None:
    """Break each connection after some bytes of the batch."""
    with closing(FaultProxy(story.site.port)) as proxy:
        proxy.fault("cut", [3000])
        status, told = story.run("submit", sent.model, sent.zipped, port=proxy.port)
        assert status == 5 and proxy.cuts > 1, told
    assert not story.has_task(sent.model)


def lose_machine_in_batch(story: Story, sent: Sent) -> None:
    """Lose the machine in the middle of the batch.
    Half of it has come, and the connection is reset.
    """
    data = Path(sent.zipped).read_bytes()
    head = (
        f"POST /v1/models/{sent.model}/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
        f"{story.key}\r\nContent-Type: application/zip\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", story.site.port), PATIENCE_S) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.sendall(head.encode() + data[: len(data) // 2])
    assert not story.has_task(sent.model)


def kill_api(story: Story, sent: Sent, point: str) -> None:
    """Let the API die with the request, and stay away until the client gives up."""
    story.arm(point)
    status, told = story.run("submit", sent.model, sent.zipped)
    assert status == 5, told
    story.until_dead(API)
    story.revive()


def kill_api_before_commit(story: Story, sent: Sent) -> None:
    kill_api(story, sent, "submit-stored")
    assert not story.has_task(sent.model)


def lose_response(story: Story, sent: Sent) -> None:
    kill_api(story, sent, "submit-committed")
    assert story.has_task(sent.model)


def kill_worker(story: Story, sent: Sent, point: str) -> None:
    """Let the worker die with the job, while the client is away before it is back."""
    story.arm(point)
    process = story.command("submit", sent.model, sent.zipped)
    story.until_dead(*story.workers)
    process.kill()
    process.wait()
    story.revive()


def kill_worker_at_ingest(story: Story, sent: Sent) -> None:
    kill_worker(story, sent, "ingest-committed")


def kill_worker_before_publish(story: Story, sent: Sent) -> None:
    kill_worker(story, sent, "publish-stored")


def kill_worker_after_publish(story: Story, sent: Sent) -> None:
    kill_worker(story, sent, "publish-committed")


def restart_service(story: Story, sent: Sent) -> None:
    """Restart the whole service, and the machine that sent with it."""
    process = story.command("submit", sent.model, sent.zipped)
    story.until(lambda: story.has_task(sent.model))
    process.kill()
    process.wait()
    story.site.stop()
    story.start()


INTERRUPTIONS: list[Callable[[Story, Sent], None]] = [
    time_client_out, press_ctrl_c, terminate_client, kill_client, cut_in_batch, lose_machine_in_batch,
        kill_api_before_commit, lose_response,
    kill_worker_at_ingest, kill_worker_before_publish, kill_worker_after_publish, restart_service,
]  # fmt: skip
