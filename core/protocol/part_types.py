"""Types of the parts of a version: which of them it answers with, and which nobody is given."""

from core.protocol.manifest import FEATURES, Manifest

IMAGE_TYPES = frozenset({"buffer", "exemplars"})
"""Types of parts that hold images of the training data."""
PRIVATE_TYPES = IMAGE_TYPES | {FEATURES}
"""Types of parts that hold training data, as images or as their features."""
NETWORK_TYPES = frozenset({"backbone", "head", "base", "prompts", "displacement", "reference", "expert"})


def inference_part_types(manifest: Manifest) -> frozenset[str]:
    """Types of the parts that a version answers with: its network's, and state that its method reads to answer."""
    read = () if manifest.method is None else manifest.method.predicts_with
    return NETWORK_TYPES | (frozenset(read) - PRIVATE_TYPES)
