"""What a result says of its network: enough to build it again, and to know how it was made."""

from collections.abc import Mapping

from core.learn.method import Method
from core.learn.networks import Network
from core.protocol.architecture import Head, NetworkDescription, Normalisation
from core.protocol.job_result import LearnedNetwork
from core.protocol.manifest import Environment, MadeBy


def described(
    network: Network,
    method: Method,
    hyper: Mapping[str, object],
    normalise: Normalisation,
    environment: Environment,
    steps: int,
) -> LearnedNetwork:
    """A learned network without its tensors.

    Args:
        hyper: of the method, without its name.
        normalise: mean and standard deviation of its images.
        environment: what its numbers depend on besides its inputs.
        steps: of the optimizer, so far.
    """
    told = network.describe()
    return LearnedNetwork(
        classes=network.classes,
        heads=[Head(task=task, classes=names) for task, names in network.head_classes.items()],
        network=None if told is None else NetworkDescription.from_json(told),
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
