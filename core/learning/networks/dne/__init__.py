"""Dense network expansion: experts of transformer heads that read the features of earlier ones.

Hu et al. 2023, Dense Network Expansion for Class Incremental Learning, CVPR.

- `spatial.py`: attention between the patches of an image.
- `task_attention.py`: attention between heads, patch by patch, which mixes features of experts.
- `expert.py`: one expert.
- `chain.py`: all of them, one after the other.
- `packed.py`: frozen ones together, in training.
"""
