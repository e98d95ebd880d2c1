"""Stage 4 of predict: graphs of versions that are used often, in place of their networks.

A version's network predicts the first images, which are kept. Once there are enough, a process
(`graph_maker`) writes the version's graph and compares both on these images. If they agree, the
graph predicts from then on, two to three times as fast. One graph is made at a time. A version
without a graph uses a copy of its network with fused layers (`core.learning.evaluation.fused`), once that copy
has predicted the same images alike.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.contract.jobs.export_job import get_head_output_name
from core.learning.export.check import TOLERANCE, Images, load_onnx_graph_runner
from core.learning.export.engine import ExportedPredictionEngine, Probabilities
from core.learning.export.graph import ExportFailed
from core.processes import helper_process
from core.processes.messages import read_framed_message, write_framed_message

SAMPLE_IMAGES = 100
SAMPLE_BYTES = 16 << 20
"""Maximum bytes of images kept for the comparison; of large images fewer are kept."""
MOST_WEIGHT_BYTES = 512 << 20
"""Maximum bytes of weights of a version that gets a graph, since both are in memory at once."""
MAKE_S = 900.0
"""Seconds after which an unfinished graph is given up."""
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
Run = Callable[[Images, int | None], Probabilities]
COMMAND = (sys.executable, "-m", "core.predictions.helper.graph_maker")


@dataclass
class VersionOnnxGraph:
    """A version's exported graph for fast predictions, and the data from which it is made.

    Attributes:
        name: name of the version, for the log.
        manifest: manifest of the version as JSON.
        parts: paths of the parts by name.
        weight_bytes: bytes of the parts.
        fuse: function that makes the `run` of an engine with fused layers, if possible; called
            once.
        engine: engine that predicts in place of the network, once it was checked.
        trial: engine that is being compared with the network, and the number of images left to
            compare.
        is_wanted: False if no graph is to be made: there is one, it is being made, or it was given
            up.
        is_given_up: True if there will be no graph.
        sample: (task, images) of earlier requests.
    """

    name: str
    manifest: bytes
    parts: Mapping[str, str]
    weight_bytes: int
    fuse: Callable[[int | None], Run | None] | None
    engine: ExportedPredictionEngine | None = None
    trial: tuple[ExportedPredictionEngine, int] | None = None
    is_wanted: bool = True
    is_given_up: bool = False
    sample: list[tuple[int | None, NDArray[np.uint8]]] = field(default_factory=list)

    def add_sample_images(self, images: NDArray[np.uint8], task: int | None) -> None:
        """Keep sample images of requests, as many as the graph's comparison with the network
        needs.
        """
        remaining_count = SAMPLE_IMAGES - sum(
            len(sample_images) for _, sample_images in self.sample
        )
        # A view would hold all images of the request in memory.
        self.sample.append((task, images[:remaining_count].copy()))

    def has_enough_sample_images(self) -> bool:
        """Return True once there are enough sample images to compare the graph with the network."""
        images, size = (
            sum(measure(sample_images) for _, sample_images in self.sample)
            for measure in (len, _count_image_bytes)
        )
        return images >= SAMPLE_IMAGES or size >= SAMPLE_BYTES


@dataclass
class _GraphInProgress:
    """A graph export in progress: folder, process, and monotonic time of its start."""

    graph: VersionOnnxGraph
    folder: Path
    process: "subprocess.Popen[bytes]"
    since: float


class OnnxGraphMaker:
    """Exports graphs of often used versions in a process beside the predictions, one at a time.

    Args:
        threads: threads of ONNX Runtime and torch.
        command: command that starts the process; replaced in tests.

    Attributes:
        notes: entries for the service's log, taken by the process that writes it.
    """

    def __init__(self, threads: int, command: Sequence[str] = COMMAND) -> None:
        self._threads = threads
        self._command = list(command)
        self._waiting: deque[VersionOnnxGraph] = deque()
        self._making: _GraphInProgress | None = None
        self._is_possible = all(importlib.util.find_spec(name) for name in PACKAGES)
        self.notes: list[dict[str, str]] = []

    def record_images_and_queue_graph(
        self, graph: VersionOnnxGraph, images: NDArray[np.uint8], task: int | None
    ) -> None:
        """Count images predicted by a version's network, and keep samples to make its graph.

        Its graph is made once there are enough of them.
        """
        if not graph.is_wanted:
            return
        if not self._is_possible:
            self.give_up_graph(graph, f"{', '.join(PACKAGES)} are not all installed")
        elif graph.weight_bytes > MOST_WEIGHT_BYTES:
            self.give_up_graph(
                graph, f"its {graph.weight_bytes} bytes of weights would be in memory twice"
            )
        else:
            graph.add_sample_images(images, task)
            if graph.has_enough_sample_images():
                # Before the graph exists, so that no more samples are kept meanwhile.
                graph.is_wanted = False
                self._waiting.append(graph)

    def give_up_graph(self, graph: VersionOnnxGraph, reason: str) -> None:
        """Give up a version's graph for a stated reason, so that its network predicts from now
        on.
        """
        graph.engine, graph.is_wanted, graph.is_given_up, graph.sample = None, False, True, []
        self.notes.append({"version": graph.name, "reason": reason})

    def try_fused_layers_as_engine(
        self, graph: VersionOnnxGraph, images: Images, task: int | None, exact: Probabilities
    ) -> None:
        """Check a version's network with fused layers against the network itself, if it has no
        graph.

        After enough equal predictions they become its engine.
        """
        if graph.is_given_up and graph.fuse is not None:
            # Only once: layers that cannot be fused would otherwise be tried at each request.
            fuse, graph.fuse = graph.fuse, None
            run = fuse(task) if graph.weight_bytes <= MOST_WEIGHT_BYTES else None
            graph.trial = (
                None
                if run is None
                else (ExportedPredictionEngine("torch", run, TOLERANCE), SAMPLE_IMAGES)
            )
        if graph.trial is None:
            return
        engine, remaining_count = graph.trial
        differences = np.abs(engine.run(images, task) - exact)
        # NaN compares as False, and so ends the trial too.
        if not (differences <= engine.tolerance).all():
            graph.trial = None
        elif remaining_count > len(images):
            graph.trial = engine, remaining_count - len(images)
        else:
            graph.engine, graph.trial = engine, None

    def drop_graph(self, graph: VersionOnnxGraph) -> None:
        """Discard the graph of a version that is no longer in memory."""
        graph.is_wanted, graph.sample = False, []
        if graph in self._waiting:
            self._waiting.remove(graph)
        if self._making is not None and self._making.graph is graph:
            self._end_graph_making()

    def advance_graph_making(self) -> None:
        """Adopt the graph that the export process has finished, abandon an overdue one, and start
        the next.
        """
        making = self._making
        if making is not None and making.process.poll() is not None:
            self._adopt_or_give_up_graph(making)
            self._end_graph_making()
        # A process that hangs would keep every other version from getting a graph.
        elif making is not None and time.monotonic() > making.since + MAKE_S:
            self.give_up_graph(making.graph, f"its graph was not made within {MAKE_S:.0f} s")
            self._end_graph_making()
        if self._making is None and self._waiting:
            self._start_graph_making(self._waiting.popleft())

    def end_export_process(self) -> None:
        """End the graph export process, if one runs, and remove its files."""
        self._waiting.clear()
        self._end_graph_making()

    def _start_graph_making(self, graph: VersionOnnxGraph) -> None:
        """Start the process that exports a graph, and send it the request."""
        folder = Path(tempfile.mkdtemp(prefix="perennial-graph-"))
        process = subprocess.Popen(
            self._command,
            cwd=helper_process.ROOT,
            env=helper_process.build_helper_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._making = _GraphInProgress(graph, folder, process, time.monotonic())
        # The request counts images by task, so those of one task must lie together.
        graph.sample.sort(key=lambda one: one[0] or 0)
        tasks = {task: 0 for task, _ in graph.sample}
        for task, images in graph.sample:
            tasks[task] += len(images)
        header = {
            "folder": str(folder),
            "parts": dict(graph.parts),
            "threads": self._threads,
            "tasks": list(tasks.items()),
        }
        raw = b"".join(images.tobytes() for _, images in graph.sample)
        graph.sample = []
        assert process.stdin is not None
        try:
            for message in (json.dumps(header).encode(), graph.manifest, raw):
                write_framed_message(process.stdin, message)
        except BrokenPipeError:
            pass  # it has ended: `advance_graph_making` handles that

    def _adopt_or_give_up_graph(self, making: _GraphInProgress) -> None:
        """Load the finished graph for predictions, or give it up."""
        assert making.process.stdout is not None
        try:
            result = json.loads(read_framed_message(making.process.stdout))
            if "detail" in result:
                return self.give_up_graph(making.graph, result["detail"])
            graph = load_onnx_graph_runner(Path(result["file"]), self._threads)
            making.graph.engine = ExportedPredictionEngine(
                "onnxruntime",
                lambda images, task: graph(images)[get_head_output_name(task)],
                result["tolerance"],
            )
        # A process that dies writes no message, a part of one, or one without these fields.
        except (EOFError, ValueError, KeyError):
            self.give_up_graph(
                making.graph,
                f"the process that makes graphs ended with {making.process.returncode}",
            )
        except ExportFailed as error:
            self.give_up_graph(making.graph, str(error))

    def _end_graph_making(self) -> None:
        """End the graph export process, and remove its files."""
        making, self._making = self._making, None
        if making is not None:
            helper_process.kill_helper_process(making.process)
            # ONNX Runtime has read the files by now.
            shutil.rmtree(making.folder, ignore_errors=True)


def _count_image_bytes(images: NDArray[np.uint8]) -> int:
    return images.nbytes
