"""Compare every answer that a client gets with the OpenAPI document of the service."""

import httpx2

from tests.openapi import Contract


def watch_contract(http: httpx2.Client) -> set[str]:
    """Return a set that collects the parts of later responses that `/openapi.json` does not
    describe.
    """
    contract = Contract(http.get("/openapi.json").json())
    unnamed: set[str] = set()

    def collect_contract_faults(response: httpx2.Response) -> None:
        response.read()
        unnamed.update(contract.faults(response))

    http.event_hooks["response"].append(collect_contract_faults)
    return unnamed
