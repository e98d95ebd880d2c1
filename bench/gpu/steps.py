"""The steps of the calls: what each one shows, how long it may take and how long it should take.

`expected_s` is the arithmetic beside it, rounded up. It assumes an accelerator of the class of one
H100 with 16 cores: 8 s for a process that imports torch and opens CUDA, 0.01 ms for a kernel launch
from Python, 800 TFLOP/s for a large bfloat16 product of which networks reach 5 to 40 %, 3 TB/s of
device memory, 1 GB/s of disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Program = Literal["check", "figures"]
Device = Literal["cuda", "cpu", "sim"]
DEVICES: tuple[Device, ...] = get_args(Device)

BUDGETS_S: dict[Program, int] = {"check": 450, "figures": 350}
"""Seconds of a call, everything included."""
LIMIT_S = 960
"""The limits of all steps together: what two calls take at worst if none is cut by its budget."""


@dataclass(frozen=True)
class GpuCheckStep:
    """A step of the GPU check, with its function, limits and what it shows.

    Attributes:
        name: in the result file and on the command line.
        shows: what is known once it ended well.
        limit_s: seconds after which its processes are killed.
        expected_s: seconds that it should take on the class of device that the module's text names.
        arithmetic: how `expected_s` comes about.
        work: `module:function`, called with a `GpuCheckStepRun`.
        devices: where it can show something; elsewhere it is left out, and `why` is recorded.
    """

    name: str
    program: Program
    shows: str
    limit_s: float
    expected_s: int
    arithmetic: str
    work: str
    devices: tuple[Device, ...] = DEVICES
    why: str = ""


_WORK = "bench.gpu.work."
_CHECK = (
    GpuCheckStep(
        "machine",
        "check",
        "driver, cuDNN and libraries; the ceilings of copies and of matrix products",
        20,
        10,
        "start 8; 20 copies of 4 GiB read and written at 3 TB/s: 0.1; 20 products of 8192³ (1.1 "
        "TFLOP) at 800 and at 50 TFLOP/s: 0.5; first calls of the libraries: 1",
        f"{_WORK}machine:record_machine_description_and_rates",
    ),
    GpuCheckStep(
        "absent device",
        "check",
        "a job that asks for a device which is not visible fails with the kind `device`; `auto` "
        "takes the CPU",
        20,
        10,
        "start 8, and of a process without a visible device at the same time; no work",
        f"{_WORK}failures:record_absent_device_failure",
    ),
    GpuCheckStep(
        "fork",
        "check",
        "three jobs forked from one zygote that holds no CUDA, one killed in mid-kernel; 90 % of "
        "the memory can be allocated afterwards",
        50,
        33,
        "start 8; zygote's imports 4; three children, one after the other, 5 for CUDA and cuDNN "
        "and 2 of steps each",
        f"{_WORK}fork:record_forked_job_checks",
    ),
    GpuCheckStep(
        "service",
        "check",
        "the whole service: three batches of pictures over HTTP, learned by its worker on the "
        "device, with the defaults and by DER++ on ResNet-18",
        120,
        50,
        "start 8; the service's first start 10; six jobs of 1 and of 15 epochs on 90 images: 4 "
        "for CUDA and cuDNN and 1 of steps each",
        f"{_WORK}service:record_service_updates",
    ),
    GpuCheckStep(
        "out of memory",
        "check",
        "jobs without memory fail with the kind `memory`; the process learns again once there is "
        "memory",
        28,
        16,
        "start 8; 20,000 images of 64 pixels written and read: 3; three jobs of 2 to 12 steps: 1 "
        "each; 80 GB taken and given back: 1",
        f"{_WORK}failures:record_memory_failures",
        devices=("cuda",),
        why="the memory of other devices is that of the host",
    ),
    GpuCheckStep(
        "methods",
        "check",
        "every method in every scenario learns two tasks, in the device's own format and in "
        "float32. Weights and accuracies are compared with those of float32 on the CPU",
        70,
        48,
        "53 pairs of a method and a scenario: 212 jobs on the device at 0.7 (12 steps of 500 "
        "launches, curvature, evaluation, files) and 106 on the CPU at 0.5: 201 in 8 processes: "
        "26; their start 20, since 8 import at once",
        f"{_WORK}methods:record_method_differences_from_cpu",
    ),
    GpuCheckStep(
        "conformance",
        "check",
        "the conformance kit of the tests on this device",
        95,
        75,
        "273 checks of 1 to 8 jobs, on average 3 of 0.6 on the device: 491 in 8 processes: 62; "
        "start 12",
        f"{_WORK}conformance:run_and_record_conformance_tests",
    ),
    GpuCheckStep(
        "repeat",
        "check",
        "finetune, der++, ewc-online (kfac), dlcft and dne on resnet20, small-cnn and ViT. Each "
        "is repeated, and killed and resumed, deterministic and not: are the bits the same, and "
        "what does deterministic cost",
        95,
        48,
        "13 pairs of a method and a network that it accepts, each in two kinds, 4 jobs of 24 steps "
        "of 700 launches (0.2) and 0.6 of evaluation, consolidation and files: 13 × 2 × 4 × 0.8 = "
        "83 in 8 processes: 10; their start 20; price: 3 networks × 2 × 60 steps of 10 ms and "
        "images of the files: 10; start 8",
        f"{_WORK}repeat:record_repeatability",
    ),
    GpuCheckStep(
        "evaluation",
        "check",
        "answers of the same network on the CPU and on the device, with TF32 and without",
        28,
        18,
        "start 8; 1,000 images of 32 pixels through ResNet-18 (1.1 GFLOP each) on 16 cores at 300 "
        "GFLOP/s: 4; on the device four times below 1",
        f"{_WORK}evaluation:record_logit_differences_from_cpu",
    ),
    GpuCheckStep(
        "blocking calls",
        "check",
        "calls per training step for which the host waits for the device, by method, with the "
        "places in the code",
        40,
        28,
        "start 8; 20 methods, two tasks of 12 steps at 0.5 a job: 20",
        f"{_WORK}blocking:record_blocking_calls",
    ),
)

_LOOP = (
    "the training loop beside a bare loop and a CUDA graph; images on the device and "
    "on the host; deterministic kernels and not"
)
_NOT_SIMULATED: tuple[Device, ...] = ("cuda", "cpu")
_WHY = "the program takes no other device"
_FIGURES = (
    GpuCheckStep(
        "loop resnet20",
        "figures",
        f"{_LOOP}: ResNet-20 at 32 pixels, batch 128",
        40,
        14,
        "start 8; bound by 700 launches, 7 ms a step: 6 ways × 60 steps: 3; the job's files 1 for "
        "each of 3: 3",
        f"{_WORK}loops:record_resnet20_training_rates",
    ),
    GpuCheckStep(
        "loop resnet18",
        "figures",
        f"{_LOOP}: ResNet-18 at 32 pixels, batch 256",
        40,
        14,
        "start 8; 3.3 GFLOP an image and step, 0.86 TFLOP a batch at 15 %: 7 ms: 6 ways × 60 "
        "steps: 3; files 3",
        f"{_WORK}loops:record_resnet18_training_rates",
    ),
    GpuCheckStep(
        "loop resnet50",
        "figures",
        f"{_LOOP}: ResNet-50 at 224 pixels, batch 128",
        55,
        25,
        "start 8; 512 images of 150 kB made and read: 3; 25 GFLOP an image and step, 3.1 TFLOP a "
        "batch at 8 % (bound by memory): 48 ms: 6 ways × 30 steps: 10; files 4",
        f"{_WORK}loops:record_resnet50_training_rates",
    ),
    GpuCheckStep(
        "loop vit_b_16",
        "figures",
        f"{_LOOP}: ViT-B/16 at 224 pixels, batch 128",
        55,
        28,
        "start 8; images 3; 105 GFLOP an image and step, 13.5 TFLOP a batch at 30 %: 56 ms: 6 ways "
        "× 30 steps: 10; files 7",
        f"{_WORK}loops:record_vit_training_rates",
    ),
    GpuCheckStep(
        "costs",
        "figures",
        "steps and whole updates of methods beside fine-tuning (`bench.methods.costs`)",
        45,
        35,
        "two starts 12; 8 rows of 4 jobs at 0.7 (images, network, 9 steps of 10 to 80 ms): 23",
        f"{_WORK}programs:record_method_costs",
        _NOT_SIMULATED,
        _WHY,
    ),
    GpuCheckStep(
        "dlcft",
        "figures",
        "a linearised step beside a plain one (`bench.methods.dlcft_cost`)",
        20,
        14,
        "start 8; 11 ways × 6 rounds of ResNet-18 at 10 to 50 ms: 2; counting and memory 3",
        f"{_WORK}programs:record_dlcft_costs",
        _NOT_SIMULATED,
        _WHY,
    ),
    GpuCheckStep(
        "dne",
        "figures",
        "old experts packed beside exact, a step beside the naive one (`bench.methods.dne_cost`)",
        20,
        14,
        "start 8; 6 ways × 6 rounds at 20 to 80 ms: 2; building six experts 2",
        f"{_WORK}programs:record_dne_costs",
        _NOT_SIMULATED,
        _WHY,
    ),
    GpuCheckStep(
        "optimizer step",
        "figures",
        "a step with OLOR beside the stock optimizer's (`bench.methods.optimizer_step`)",
        16,
        12,
        "start 8; 3 optimizers × 33 rounds × 3 parts at 10 ms: 3",
        f"{_WORK}programs:record_olor_step_costs",
        _NOT_SIMULATED,
        _WHY,
    ),
    GpuCheckStep(
        "snapshot",
        "figures",
        "seconds that a snapshot of 1 GB takes: copy to the host, file, sync",
        13,
        10,
        "start 8; 1 GB over a bus of 20 GB/s 0.05, disk 1",
        f"{_WORK}snapshot:record_snapshot_write_rate",
    ),
    GpuCheckStep(
        "compiler",
        "figures",
        "a bare loop on ResNet-20 at 32 pixels, compiled and not",
        90,
        60,
        "start 8; more than 20 s were seen for the compiler, which has not finished yet",
        f"{_WORK}loops:record_compiled_training_rates",
        ("cuda",),
        "the compiler's programs are measured on CUDA alone",
    ),
)

STEPS: dict[str, GpuCheckStep] = {step.name: step for step in (*_CHECK, *_FIGURES)}


def list_steps_of_gpu_check_program(program: Program) -> list[GpuCheckStep]:
    """Return the steps of a GPU-check program in order."""
    return [step for step in STEPS.values() if step.program == program]


def render_gpu_check_step_table() -> str:
    """Render a Markdown table of all steps of the GPU checks with their estimated seconds."""
    lines = [
        "| call | step | expected s | limit s | arithmetic, in seconds |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for program, budget_s in BUDGETS_S.items():
        steps = list_steps_of_gpu_check_program(program)
        lines += [
            f"| `{s.program}` | {s.name} | {s.expected_s} | {s.limit_s:g} | {s.arithmetic} |"
            for s in steps
        ]
        expected_s, limit_s = sum(s.expected_s for s in steps), sum(s.limit_s for s in steps)
        lines.append(
            f"| `{program}` | **all** | **{expected_s}** | **{limit_s:g}** | ends after {budget_s} "
            f"in any case |"
        )
    expected_s, limit_s = (
        sum(s.expected_s for s in STEPS.values()),
        sum(s.limit_s for s in STEPS.values()),
    )
    lines.append(f"| **both** | | **{expected_s}** | **{limit_s:g}** | at most {LIMIT_S} |")
    return "\n".join(lines)
