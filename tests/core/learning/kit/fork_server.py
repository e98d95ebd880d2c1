"""Runs job specs, each in a process of its own, forked from one that has imported torch and run
nothing.

Reads JSON lines {"spec": path, "architecture": name, "import": path or null} and answers each with
the child's exit status.
"""

import gc
import importlib.util
import json
import os
import sys

import simulated_device
import torch.fx.experimental.symbolic_shapes  # noqa: F401  # for meta tensors, once here: it takes a second

from core.contract.jobs.job_spec import LearnJobSpec
from core.learning.torchvision_import import import_torchvision_models
from core.learning.training import job

if os.environ.get("PERENNIAL_TEST_DEVICE") == simulated_device.NAME:
    simulated_device.install_device()


def learn_in_child(request: dict) -> int:
    if request["import"]:
        found = importlib.util.spec_from_file_location("extra_method", request["import"])
        found.loader.exec_module(importlib.util.module_from_spec(found))
    with open(request["spec"]) as file:  # noqa: PTH123
        job.learn_task(LearnJobSpec.from_json(json.load(file)), lambda event: None)
    # torchvision imports the compiler itself
    lean = "torchvision" in sys.modules or "torch._dynamo" not in sys.modules
    assert lean, "torch's compiler was imported: see core.learning.optimizers.eager"
    return 0


gc.freeze()  # children look for garbage among their own objects alone
for line in sys.stdin:
    request = json.loads(line)
    if "vit" in request["architecture"]:
        import_torchvision_models()  # once here, or every child takes seconds for it
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = learn_in_child(request)
        finally:
            sys.stderr.flush()
            os._exit(status)
    print(os.waitpid(pid, 0)[1], flush=True)
