"""Owners of a service under attack: their keys and trained models."""

from tests.rest import Rest

NETWORK = {"name": "mlp", "hidden": [4]}
RECIPE = {"method": "finetune", "epochs": 1}


def make_key(admin: Rest, owner: str, scope: str = "write") -> str:
    """Make a key and return its secret."""
    given = {"name": f"{owner}-{scope}", "owner": owner, "scope": scope}
    return str(admin.call("POST", "/v1/keys", json=given).json()["secret"])


def make_client(admin: Rest, owner: str, timeout: float = 60.0) -> Rest:
    """Make a client with a new write key."""
    return Rest(str(admin.http.base_url), make_key(admin, owner), timeout)


def teach_models(client: Rest, batch: bytes, *models: str) -> None:
    """Create models and train each on a batch."""
    for model in models:
        client.models.create(model, architecture=NETWORK, recipe=RECIPE, gate={"checks": "off"})
        job = client.wait(client.submit(model, batch))
        if job.state != "succeeded":
            raise RuntimeError(f"an honest batch ended as {job.state}: {job.error}")
