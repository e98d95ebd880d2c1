"""The network of an adopted version, loaded from the bytes in the store of a service."""

from pathlib import Path

from core.contract.manifest import Manifest
from core.learning.evaluation import predicting
from core.learning.networks import Network
from core.settings import Settings
from core.storage import Blobs, open_object_store
from tests.rest import Rest


def load_version(client: Rest, data_dir: Path, model: str, version: int) -> Network:
    """Return the network of a version of a service that stores its files in a folder."""
    manifest = Manifest.from_json(client.get(f"/v1/models/{model}/versions/{version}")["manifest"])
    store = open_object_store(Settings(data_dir=data_dir))
    paths = {
        part.name: store.get_local_path(Blobs.make_blob_key(part.sha256)) for part in manifest.parts
    }
    return predicting.load_version_network(
        manifest, {n: p for n, p in paths.items() if p is not None}
    )
