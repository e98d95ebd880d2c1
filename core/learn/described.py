"""Description of a learned network in a result: enough to rebuild it, and how it was made."""

from collections.abc import Mapping

from core.learn.method import Method
from core.learn.networks import Network
from core.protocol.architecture import Head, NetworkDescription, Normalisation
from core.protocol.job_result import LearnedNetwork
from core.protocol.manifest import Environment, MadeBy


def describe_network(
    network: Network,
    method: Method,
    hyper: Mapping[str, object],
    normalise: Normalisation,
    environment: Environment,
    steps: int,
) -> LearnedNetwork:
    """Describe a learned network without its tensors.

    Args:
        network: the network.
        method: the method that trained it.
        hyper: of the method, without its name.
        normalise: mean and standard deviation of its images.
        environment: software and hardware that its numbers depend on besides its inputs.
        steps: of the optimizer, so far.
    """
    description = network.describe()
    return LearnedNetwork(
        classes=network.classes,
        heads=[Head(task=task, classes=names) for task, names in network.head_classes.items()],
        network=None if description is None else NetworkDescription.from_json(description),
        method=MadeBy(
            name=method.name,
            hyper=dict(hyper),
            state=method.state.json(),
            predicts_with=list(method.predicts_with),
        ),
        normalise=normalise,
        environment=environment,
        steps=steps,
    )
