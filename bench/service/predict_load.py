"""Clients that ask for predictions without pause, in a process of their own: latencies of each request.

    python -m bench.service.predict_load < JSON

The input names `host`, `port`, `path`, `keys` (clients take them in turns), `bodies` (files; a client begins with
another one than its neighbour), `type` (Content-Type), `clients` and `seconds`. Requests are made by `http.client`
over kept connections, so that little of the machine's time is the client's.
"""

import http.client
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any


def ask(load: dict[str, Any], number: int, bodies: list[bytes], taken: list[float], end: float) -> None:
    """Send one request after the other until the clock says `end`, and note the seconds of each."""
    connection = http.client.HTTPConnection(load["host"], load["port"], timeout=120)
    key = load["keys"][number % len(load["keys"])]
    headers = {"Authorization": f"Bearer {key}", "Content-Type": load["type"]}
    while time.monotonic() < end:
        begin = time.monotonic()
        connection.request("POST", load["path"], bodies[number % len(bodies)], headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {answer[:300]!r}")
        if time.monotonic() < end:
            taken.append(time.monotonic() - begin)
        number += 1


def main() -> None:
    """Run the clients and print a JSON list of seconds."""
    load = json.load(sys.stdin)
    bodies = [Path(path).read_bytes() for path in load["bodies"]]
    taken: list[float] = []
    end = time.monotonic() + load["seconds"]
    threads = [
        threading.Thread(target=ask, args=(load, number, bodies, taken, end))
        for number in range(load["clients"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
