"""Holds every answer that a client gets against the service's own document."""

import httpx2

from tests.openapi import Contract


def watch(http: httpx2.Client) -> set[str]:
    """Return a set that gathers what `/openapi.json` does not name of the answers that the client gets from now on."""
    contract = Contract(http.get("/openapi.json").json())
    unnamed: set[str] = set()

    def compare(response: httpx2.Response) -> None:
        response.read()
        unnamed.update(contract.faults(response))

    http.event_hooks["response"].append(compare)
    return unnamed
