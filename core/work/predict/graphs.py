"""Station 4 of predict: graphs of the versions that are asked often, in place of their networks.

The first images that a version is asked about are answered by its network, and kept. When they are enough, a process
(`graph_maker`) writes the version's graph and compares both on these images; where they agree, the graph answers from
then on, two to three times as fast. One graph is made at a time. A version that gets none is answered by a copy of its
network with fused layers (`core.learn.fused`), once that has answered the same images alike.
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

from core import helper_process
from core.learn.onnx.check import TOLERANCE, Images, open_graph
from core.learn.onnx.engine import Engine, Probabilities
from core.learn.onnx.graph import ExportFailed
from core.messages import read_message, write_message
from core.protocol.export_job import output_name

SAMPLE_IMAGES = 100
SAMPLE_BYTES = 16 << 20
"""Of images that are kept for the comparison; large images are fewer."""
MOST_WEIGHT_BYTES = 512 << 20
"""A version with more is answered by its network: both are in memory at once."""
MAKE_S = 900.0
"""A graph that is not made by then is given up."""
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
Run = Callable[[Images, int | None], Probabilities]
COMMAND = (sys.executable, "-m", "core.work.predict.graph_maker")


@dataclass
class VersionGraph:
    """A version's graph, and what it is made of.

    Attributes:
        name: of the version, for the log.
        parts: name to path.
        weight_bytes: of the parts.
        fuse: makes the `run` of an engine of the network with fused layers, if it can; called once.
        engine: answers in place of the network, once it was checked.
        trial: an engine that is being compared with the network, and the images that are left to compare.
        is_wanted: False where no graph is to be made: one is there, is being made, or was given up.
        is_given_up: there will be none.
        sample: (task, images) that were asked about.
    """

    name: str
    manifest: bytes
    parts: Mapping[str, str]
    weight_bytes: int
    fuse: Callable[[int | None], Run | None] | None
    engine: Engine | None = None
    trial: tuple[Engine, int] | None = None
    is_wanted: bool = True
    is_given_up: bool = False
    sample: list[tuple[int | None, NDArray[np.uint8]]] = field(default_factory=list)

    def keep(self, images: NDArray[np.uint8], task: int | None) -> None:
        """Keep images that are asked about, as many as the comparison needs."""
        left = SAMPLE_IMAGES - sum(len(some) for _, some in self.sample)
        self.sample.append((task, images[:left].copy()))

    def is_sample_full(self) -> bool:
        """Return True once there are images enough to compare with."""
        images, size = (sum(measure(some) for _, some in self.sample) for measure in (len, _bytes))
        return images >= SAMPLE_IMAGES or size >= SAMPLE_BYTES


@dataclass
class _Making:
    graph: VersionGraph
    folder: Path
    process: "subprocess.Popen[bytes]"
    since: float


class GraphMaker:
    """Makes graphs beside the helper's answers, one at a time.

    Args:
        threads: of ONNX Runtime and torch.
        command: starts the process that makes one; replaced in tests.

    Attributes:
        notes: what the log of the service should say, taken by the one who writes it.
    """

    def __init__(self, threads: int, command: Sequence[str] = COMMAND) -> None:
        self._threads = threads
        self._command = list(command)
        self._waiting: deque[VersionGraph] = deque()
        self._making: _Making | None = None
        self._is_possible = all(importlib.util.find_spec(name) for name in PACKAGES)
        self.notes: list[dict[str, str]] = []

    def observe(self, graph: VersionGraph, images: NDArray[np.uint8], task: int | None) -> None:
        """Note that a version's network is asked about images; its graph is made once they are enough."""
        if not graph.is_wanted:
            return
        if not self._is_possible:
            self.give_up(graph, f"{', '.join(PACKAGES)} are not all installed")
        elif graph.weight_bytes > MOST_WEIGHT_BYTES:
            self.give_up(graph, f"its {graph.weight_bytes} bytes of weights would be in memory twice")
        else:
            graph.keep(images, task)
            if graph.is_sample_full():
                graph.is_wanted = False
                self._waiting.append(graph)

    def give_up(self, graph: VersionGraph, reason: str) -> None:
        """Let a version's network answer from now on, and say why; try one with fused layers."""
        graph.engine, graph.is_wanted, graph.is_given_up, graph.sample = None, False, True, []
        self.notes.append({"version": graph.name, "reason": reason})

    def try_out(self, graph: VersionGraph, images: Images, task: int | None, exact: Probabilities) -> None:
        """Compare fused layers of a version without a graph with what its network has answered.

        Enough equal answers make them its engine.
        """
        if graph.is_given_up and graph.fuse is not None:
            fuse, graph.fuse = graph.fuse, None
            run = fuse(task) if graph.weight_bytes <= MOST_WEIGHT_BYTES else None
            graph.trial = None if run is None else (Engine("torch", run, TOLERANCE), SAMPLE_IMAGES)
        if graph.trial is None:
            return
        engine, left = graph.trial
        differences = np.abs(engine.run(images, task) - exact)
        if not (differences <= engine.tolerance).all():
            graph.trial = None
        elif left > len(images):
            graph.trial = engine, left - len(images)
        else:
            graph.engine, graph.trial = engine, None

    def forget(self, graph: VersionGraph) -> None:
        """The version is no longer in memory: its graph is not needed."""
        graph.is_wanted, graph.sample = False, []
        if graph in self._waiting:
            self._waiting.remove(graph)
        if self._making is not None and self._making.graph is graph:
            self._end()

    def poll(self) -> None:
        """Take the graph that is ready, and begin the next one."""
        making = self._making
        if making is not None and making.process.poll() is not None:
            self._take(making)
            self._end()
        elif making is not None and time.monotonic() > making.since + MAKE_S:
            self.give_up(making.graph, f"its graph was not made within {MAKE_S:.0f} s")
            self._end()
        if self._making is None and self._waiting:
            self._begin(self._waiting.popleft())

    def close(self) -> None:
        """End the process, if one runs, and remove its files."""
        self._waiting.clear()
        self._end()

    def _begin(self, graph: VersionGraph) -> None:
        folder = Path(tempfile.mkdtemp(prefix="perennial-graph-"))
        process = subprocess.Popen(
            self._command,
            cwd=helper_process.ROOT,
            env=helper_process.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._making = _Making(graph, folder, process, time.monotonic())
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
                write_message(process.stdin, message)
        except BrokenPipeError:
            pass  # it has ended: `poll` says so

    def _take(self, making: _Making) -> None:
        assert making.process.stdout is not None
        try:
            result = json.loads(read_message(making.process.stdout))
            if "detail" in result:
                return self.give_up(making.graph, result["detail"])
            graph = open_graph(Path(result["file"]), self._threads)
            making.graph.engine = Engine(
                "onnxruntime", lambda images, task: graph(images)[output_name(task)], result["tolerance"]
            )
        except (EOFError, ValueError, KeyError):
            self.give_up(
                making.graph, f"the process that makes graphs ended with {making.process.returncode}"
            )
        except ExportFailed as error:
            self.give_up(making.graph, str(error))

    def _end(self) -> None:
        making, self._making = self._making, None
        if making is not None:
            helper_process.end(making.process)
            # ONNX Runtime has read the files by now.
            shutil.rmtree(making.folder, ignore_errors=True)


def _bytes(images: NDArray[np.uint8]) -> int:
    return images.nbytes
