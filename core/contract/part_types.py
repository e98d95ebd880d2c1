"""Types of the parts of a version: those that inference needs, and those that are never served."""

from core.contract.manifest import FEATURES, Manifest

IMAGE_TYPES = frozenset({"buffer", "exemplars"})
"""Types of parts with images of the training data."""
PRIVATE_TYPES = IMAGE_TYPES | {FEATURES}
"""Types of parts with training data, as images or as their features."""
NETWORK_TYPES = frozenset(
    {"backbone", "head", "base", "prompts", "displacement", "reference", "expert"}
)


def list_inference_part_types(manifest: Manifest) -> frozenset[str]:
    """Return the types of a version's parts that predictions need: network, and state of the
    method.
    """
    read = () if manifest.method is None else manifest.method.predicts_with
    # Without training data even where a method predicts with it: downloads and helpers get these
    # parts.
    return NETWORK_TYPES | (frozenset(read) - PRIVATE_TYPES)
