"""Clients that ask for predictions without pause, in a process of their own: seconds of each
request.

    python -m bench.service.predict_load < JSON

The input names `host`, `port`, `path`, `keys` (clients take them in turns), `bodies` (files; a
client begins with another one than its neighbour), `type` (Content-Type), `clients` and `seconds`,
after which no client begins another request. Requests are made by `http.client` over kept
connections, so that little of the machine's time is the client's.
"""

import argparse
import http.client
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any


def send_requests_until(
    load: dict[str, Any], number: int, bodies: list[bytes], request_seconds: list[float], end: float
) -> None:
    """Send predict requests one after the other until the clock reaches `end`, recording each time."""
    connection = http.client.HTTPConnection(load["host"], load["port"], timeout=120)
    key = load["keys"][number % len(load["keys"])]
    headers = {"Authorization": f"Bearer {key}", "Content-Type": load["type"]}
    is_first = True
    while is_first or time.monotonic() < end:
        is_first, begin = False, time.monotonic()
        connection.request("POST", load["path"], bodies[number % len(bodies)], headers)
        response = connection.getresponse()
        response_body = response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {response_body[:300]!r}")
        request_seconds.append(time.monotonic() - begin)
        number += 1


def main() -> None:
    """Run several predict clients, and print total and single request times as JSON."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    load = json.load(sys.stdin)
    bodies = [Path(path).read_bytes() for path in load["bodies"]]
    request_seconds: list[float] = []
    begin = time.monotonic()
    end = begin + load["seconds"]
    threads = [
        threading.Thread(
            target=send_requests_until, args=(load, number, bodies, request_seconds, end)
        )
        for number in range(load["clients"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"elapsed": time.monotonic() - begin, "taken": request_seconds}))


if __name__ == "__main__":
    main()
