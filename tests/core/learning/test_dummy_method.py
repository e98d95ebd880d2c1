"""A method that lives in one file passes the conformance kit by registering itself, with no other
change.
"""

import ast
from functools import cache
from pathlib import Path

import pytest
import torch

from core.learning.methods import registry
from core.learning.methods.method import Method
from core.learning.recipe import NotNegative, StrictRecipeModel


class DummyHyper(StrictRecipeModel):
    strength: NotNegative = 0.5


class Dummy(Method):
    """Pulls towards the weights of the last task's end, and draws noise from a generator of its
    own.
    """

    name = "dummy"
    description = "L2 towards the previous solution."
    source = "a test"
    Hyper = DummyHyper
    neutral = DummyHyper(strength=0.0)
    regularisers = ("penalty",)

    def add_penalty_gradients(self, ctx):
        if self.hyper.strength == 0:
            return
        noise = torch.rand((), generator=self.state["own"].get_random_generator("noise", 3))
        for name, parameter in ctx.trainable.items():
            anchor = self.state["own"].tensors.get(name)
            if anchor is not None and parameter.grad is not None:
                rows = anchor.shape[0]
                parameter.grad[:rows] += (
                    self.hyper.strength * noise * (parameter.detach()[:rows] - anchor)
                )

    def compute_penalty(self, ctx):
        held = self.state["own"].tensors
        return sum(
            float((p.detach()[: held[n].shape[0]] - held[n]).square().sum())
            for n, p in ctx.trainable.items()
            if n in held
        )

    def end_task(self, ctx, batches):
        for name, parameter in ctx.trainable.items():
            self.state["own"].tensors[name] = parameter.detach().clone()


if Dummy.name not in registry.METHODS:
    registry.register_method(Dummy)

if __name__ != "extra_method":  # the fork server imports this file for the method alone
    import conformance

    @pytest.fixture(autouse=True)
    def _registered():
        registry.METHODS[Dummy.name] = Dummy
        yield
        del registry.METHODS[Dummy.name]

    del registry.METHODS[Dummy.name]

    ROOT = Path(__file__).parents[3]
    REGISTRY = "core/learning/methods/registry.py"

    @cache
    def names() -> list[tuple[str, str, str]]:
        """(path, "import" or "use", module or name) of each import from a module and each name in
        the product.
        """
        found, classes = [], {method.__name__ for method in registry.METHODS.values()}
        for path in sorted(
            p for folder in ("api", "core", "worker") for p in (ROOT / folder).rglob("*.py")
        ):
            at, text = path.relative_to(ROOT).as_posix(), path.read_text()
            if "core.learning.methods" not in text and not any(name in text for name in classes):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and node.module is not None:
                    found.append((at, "import", node.module))
                    found += [(at, "import", f"{node.module}.{alias.name}") for alias in node.names]
                elif isinstance(node, ast.Name):
                    found.append((at, "use", node.id))
        return found

    def named(method: type[Method]) -> list[tuple[str, str]]:
        """(path, "import" or "use") of each place in the product that names a method, its own file
        left out.
        """
        meant = {("import", method.__module__), ("use", method.__name__)}
        return [
            (at, what) for at, what, name in names() if (what, name) in meant and at != own(method)
        ]

    def own(method: type[Method]) -> str:
        return method.__module__.replace(".", "/") + ".py"

    NOT_DERIVED_FROM = sorted(
        name for name, m in registry.METHODS.items() if len(m.__subclasses__()) == 0
    )

    @pytest.mark.parametrize("name", NOT_DERIVED_FROM)
    def test_a_method_touches_its_own_file_and_its_line_in_the_registry(name: str) -> None:
        method = registry.METHODS[name]
        assert (ROOT / own(method)).is_file()
        assert named(method) == [(REGISTRY, "import")]

    CHECKS = [
        pytest.param(
            check,
            id=check.__name__,
            # a process that forks others takes seconds to start
            marks=pytest.mark.campaign if "processes_of_its_own" in check.__name__ else (),
        )
        for check in conformance.CHECKS
    ]
    SCENARIOS = [
        "class",
        *(pytest.param(name, marks=pytest.mark.campaign) for name in ("data", "task")),
    ]

    @pytest.mark.parametrize("scenario", SCENARIOS)
    @pytest.mark.parametrize("check", CHECKS)
    def test_a_method_in_one_file(check, scenario, case_of) -> None:
        check(case_of("dummy", scenario, module=__file__))
