"""Check that a method can train the network that a task starts from."""

from __future__ import annotations

from core.learn.dataset import DataError
from core.learn.method import Method
from core.learn.networks import Network, get_architectures
from core.protocol.job_spec import JobSpec


def check_fit(network: Network, method: Method, spec: JobSpec) -> None:
    """Raise DataError when the method cannot train a network of this architecture or family."""
    name, version = spec.architecture.name, spec.parent.version
    accepted = method.accepts.architectures
    if accepted is not None and get_architectures()[name].family not in accepted:
        raise DataError(
            f"{method.name} works on architectures of {', '.join(accepted)}, not on {name}"
        )
    if version != 0 and network.family != method.family:
        raise DataError(
            f"version {version} is a {network.family} network, and {method.name} trains "
            f"{method.family} ones: "
            "use a method of that family, or start a new model"
        )
