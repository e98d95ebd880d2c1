"""A network that is linear in its trained weights: a first-order expansion around frozen weights.

features(x) = g(x; ψ0) + D_ψ g(x; ψ0) · ψ (Mu et al. 2020; Shon et al. 2022, DLCFT, equation 6). ψ0
is the edited backbone (`edits.py`), stored once and shared by all versions. ψ, the displacement,
starts at zero and is trained. Before ψ0 is frozen the network is a plain one with the edited
activations, for a base that has random weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from core.learning.networks.backbone import copy_to_contiguous_cpu_tensor
from core.learning.networks.linear.dual import DualTensor, MissingDualRuleError, use_dual_parameters
from core.learning.networks.linear.edits import fold_batch_norms, replace_relu_by_leaky_relu
from core.learning.networks.network import MAX_GROUPS, Network

BACKBONE = "backbone."
DISPLACEMENT = "displacement."
REFERENCE = "reference."


class LinearisedNetwork(Network):
    """A network linearised around frozen weights: its features are linear in a displacement.

    `forward` has the arguments of a plain network's. `slope`: of the LeakyReLUs; 0 leaves ReLU.
    `fixed_head`: fixed rows W_ref (`reference`) read the derivative. Logits W g(x; ψ0) + b +
    W_ref D_ψ g · ψ are then linear in (ψ, W, b) together and not only in each.
    """

    family: ClassVar[str] = "linearised"
    # Logits combine value and derivative separately, so their sum is not enough.
    takes_features: ClassVar[bool] = False

    def __init__(self, plain: Network, *, slope: float, fixed_head: bool, frozen: bool) -> None:
        """Take over the modules of a plain network.

        Raises ValueError for a backbone that cannot be folded.
        """
        super().__init__(plain.backbone, plain.scenario)
        self.classes, self.head = plain.classes, plain.head
        self.head_classes, self.heads = plain.head_classes, plain.heads
        self.pretrained = plain.pretrained
        self.slope = slope
        self.fixed_head = fixed_head
        self.frozen = False
        self.displacement = DottedNameParameterModule()
        self.reference = DottedNameParameterModule()
        self._by_jvp = False
        self._base: str | None = None  # digest of ψ0 that a load checks
        replace_relu_by_leaky_relu(self.backbone, slope)
        if frozen:
            self.fold_norms_and_freeze_backbone()

    @staticmethod
    def from_description(plain: Network, description: Mapping[str, Any]) -> LinearisedNetwork:
        """Build the linearised network from a plain one and the manifest's description, with
        weights to be loaded.
        """
        network = LinearisedNetwork(
            plain,
            slope=description["slope"],
            fixed_head=description["fixed_head"],
            frozen=description["frozen"],
        )
        network._base = description["base"]
        network._set_zero_reference_rows_of_heads(description["references"])
        return network

    def describe_for_manifest(self) -> dict[str, Any]:
        """Describe the linearised network for the manifest.

        `references` names the heads that have reference rows, a task's by its number. `base`: the
        digest of ψ0, without which a displacement is meaningless; null before it is frozen.
        """
        return {
            "family": self.family,
            "slope": self.slope,
            "fixed_head": self.fixed_head,
            "frozen": self.frozen,
            "references": list(self.reference_head_rows),
            "base": self.hash_frozen_backbone() if self.frozen else None,
        }

    def hash_frozen_backbone(self) -> str:
        """Compute the sha256 of the frozen backbone ψ0: names, shapes and bytes."""
        digest = hashlib.sha256()
        for name, tensor in self.backbone.state_dict().items():
            # Names and shapes too: the same bytes in another arrangement are another base.
            digest.update(f"{name} {list(tensor.shape)} {tensor.dtype}\n".encode())
            digest.update(
                copy_to_contiguous_cpu_tensor(tensor).flatten().view(torch.uint8).numpy().tobytes()
            )
        return digest.hexdigest()

    def load_parts(self, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Load all stored parts into the linearised network.

        Raises ValueError as a plain network does, and for a backbone other than the described ψ0.
        """
        super().load_parts(parts)
        # Checked at each load: on another base the network would still predict, and wrongly.
        if self._base is not None and self.hash_frozen_backbone() != self._base:
            raise ValueError("the backbone is not the base that the displacement was learned on")

    # ψ0 and ψ.

    def fold_norms_and_freeze_backbone(self) -> None:
        """Freeze the present backbone as ψ0: fold its norms, and start every displacement at
        zero.
        """
        fold_batch_norms(self.backbone)
        for name, parameter in self.backbone.named_parameters():
            # Gradients go to the displacement alone.
            parameter.requires_grad_(False)
            self.displacement.add_parameter(name, nn.Parameter(torch.zeros_like(parameter)))
        self.frozen = True

    def prepare_to_load_state_dict(self, names: set[str]) -> None:
        """Prepare the network for a state dict's names: freeze it if needed, and add reference
        rows.
        """
        if not self.frozen and any(name.startswith(DISPLACEMENT) for name in names):
            self.fold_norms_and_freeze_backbone()
        heads = {name.removeprefix(REFERENCE) for name in names if name.startswith(REFERENCE)}
        # Sorted, since a set has no order, and that of the buffers is part of the state dict.
        self._set_zero_reference_rows_of_heads(sorted(heads - set(self.reference_head_rows)))

    def _set_zero_reference_rows_of_heads(self, references: Iterable[str]) -> None:
        """Add reference rows of zeros for heads, whose values are loaded afterwards."""
        for name in references:
            head = self.head if name == "shared" else self.heads[name]
            self.set_reference_rows(name, torch.zeros_like(head.weight, requires_grad=False))  # type: ignore[union-attr,arg-type]

    @property
    def reference_head_rows(self) -> dict[str, Tensor]:
        """Fixed rows that map the derivative to logits, by head: "shared", or a task's number."""
        return dict(self.reference.named_buffers())

    def set_reference_rows(self, name: str, rows: Tensor) -> None:
        """Set a head's fixed reference rows [classes, width]. Raises ValueError when they are
        set.
        """
        if name in self.reference_head_rows:
            raise ValueError(f"the reference rows of {name} are set already")
        self.reference.register_buffer(name, rows)

    # Forward passes.

    def features(self, x: Tensor, task: int | None = None) -> Tensor:
        """Compute the linearised features [B, width]: the sum of value and derivative."""
        value, tangent = self.compute_value_and_derivative(x)
        return value if tangent is None else value + tangent

    def compute_value_and_derivative(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute the value g(x; ψ0) and the derivative D_ψ g(x; ψ0) · ψ of the backbone, [B,
        width] each.

        The derivative is None before ψ0 is frozen.
        """
        if not self.frozen:
            return self.backbone(x), None
        if not self._by_jvp:
            try:
                return self.expand_by_dual_numbers(x)
            except MissingDualRuleError:
                # Later passes need not try again.
                self._by_jvp = True
        return self.expand_by_forward_mode(x)

    def expand_by_dual_numbers(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the first-order expansion by dual numbers, which need less memory than `jvp` in
        training.
        """
        moved: dict[str, Tensor | None] = dict(self.displacement.named_parameters())
        with use_dual_parameters(self.backbone, moved):
            # The image does not move, so it has no derivative.
            out = self.backbone(DualTensor(x, None))
        return out.x, out.dx

    def expand_by_forward_mode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the first-order expansion by torch's forward-mode differentiation, without dual
        rules.
        """
        psi0 = {name: p.detach() for name, p in self.backbone.named_parameters()}
        psi = dict(self.displacement.named_parameters())

        def run_backbone(weights: dict[str, Tensor]) -> Tensor:
            return torch.func.functional_call(self.backbone, weights, (x,))  # type: ignore[no-any-return]

        fast = torch.backends.mha.get_fastpath_enabled()
        # Neither the fast path nor fused attention supports forward-mode differentiation.
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with sdpa_kernel(SDPBackend.MATH):
                expansion = torch.func.jvp(run_backbone, (psi0,), (psi,))
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
        return expansion[0], expansion[1]

    def forward(self, x: Tensor, task: int | None = None) -> Tensor:
        """Map [B, channels, size, size] to logits [B, classes]."""
        value, tangent = self.compute_value_and_derivative(x)
        return self.compute_expansion_logits(value, tangent, task)

    def compute_expansion_logits(
        self, value: Tensor, tangent: Tensor | None, task: int | None = None
    ) -> Tensor:
        """Compute logits [B, classes] from the value and derivative of an expansion."""
        if tangent is None:
            return self.logits(value, task)
        if not self.fixed_head:
            return self.logits(value + tangent, task)
        return self.logits(value, task) + tangent @ self.get_readout_rows(task).T

    def compute_vector_jacobian_product(self, x: Tensor, u: Tensor) -> dict[str, Tensor]:
        """Compute the vector-Jacobian product (D_ψ g)ᵀ u by displacement, summed over examples.

        u: [B, width]. The product does not depend on ψ: it is ordinary backpropagation through the
        network at ψ0.
        """
        leaves = {name: p.detach().requires_grad_() for name, p in self.backbone.named_parameters()}
        with torch.enable_grad():
            value = torch.func.functional_call(self.backbone, leaves, (x,))
        grads = torch.autograd.grad(value, list(leaves.values()), u, allow_unused=True)
        return {
            f"{DISPLACEMENT}{name}": torch.zeros_like(leaf) if g is None else g
            for (name, leaf), g in zip(leaves.items(), grads, strict=True)
        }

    def compute_frozen_logits(self, x: Tensor, task: int | None = None) -> Tensor:
        """Compute the logits [B, classes] of the frozen weights ψ0 through the readout rows.

        Their gradient by ψ0 is D_ψ of the logits for any ψ; curvature is measured on them.
        """
        return self.backbone(x) @ self.get_readout_rows(task).T  # type: ignore[no-any-return]

    def get_readout_rows(self, task: int | None = None) -> Tensor:
        """Return the rows [classes, width] through which logits read the derivative."""
        if self.fixed_head:
            return self.reference_head_rows[self.get_reference_rows_name(task)]
        return self.get_learned_head_rows(task)

    def get_learned_head_rows(self, task: int | None = None) -> Tensor:
        """Return a head's own rows [classes, width]."""
        return self._get_head(task).weight  # type: ignore[return-value]

    def get_reference_rows_name(self, task: int | None = None) -> str:
        """Return the name of a head's fixed reference rows: "shared", or the task's number."""
        return str(task) if self.scenario == "task" else "shared"

    # Depth and parts.

    def list_tensor_names_by_depth(self) -> list[list[str]]:
        """Group parameter names by training depth, with displacements in place of frozen
        weights.
        """
        if not self.frozen:
            return super().list_tensor_names_by_depth()
        heads = [name for name in self.state_dict() if name.startswith(("head.", "heads."))]
        groups = [heads]
        for stage in reversed(range(len(self.backbone.stage_prefixes))):
            names = [f"{DISPLACEMENT}{name}" for name in self._list_displaced_names(stage)]
            if len(groups) < MAX_GROUPS:
                groups.append(names)
            else:
                groups[-1] = names + groups[-1]
        return groups

    def list_tensor_names_by_part(self) -> dict[str, list[str]]:
        """Return the parts of a plain network, and `displacement.k` for each stage.

        The backbone never changes. Frozen rows of heads are parts of their own, `reference.<head>`,
        which never change either.
        """
        names = super().list_tensor_names_by_part()
        for name in self.reference_head_rows:
            names[f"{REFERENCE}{name}"] = [f"{REFERENCE}{name}"]
        if self.frozen:
            for stage in range(len(self.backbone.stage_prefixes)):
                names[f"{DISPLACEMENT}{stage + 1}"] = [
                    f"{DISPLACEMENT}{name}" for name in self._list_displaced_names(stage)
                ]
        return names

    def _list_displaced_names(self, stage: int) -> list[str]:
        """List a stage's parameter names that have a displacement."""
        parameters = {name for name, _ in self.backbone.named_parameters()}
        return [
            name for name in self.backbone.list_tensor_names_of_stage(stage) if name in parameters
        ]


class DottedNameParameterModule(nn.Module):
    """A module with copies of another module's parameters and buffers under their dotted names."""

    def add_parameter(self, name: str, parameter: nn.Parameter) -> None:
        """Add a parameter under a name such as `layer1.0.conv1.weight`."""
        first, _, remainder = name.partition(".")
        if not remainder:
            self.register_parameter(first, parameter)
            return
        child = self._modules.get(first)
        if child is None:
            child = DottedNameParameterModule()
            self.add_module(first, child)
        assert isinstance(child, DottedNameParameterModule)
        child.add_parameter(remainder, parameter)
