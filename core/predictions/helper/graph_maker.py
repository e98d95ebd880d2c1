"""Program that makes and checks a version's graph: `python -m core.predictions.helper.graph_maker`.

It runs beside the helper, which predicts by torch meanwhile, since writing a graph once takes
seconds and half a gigabyte. It reads one request from stdin: JSON, the version's manifest, and
images of earlier requests. It writes the graph into the folder that the request names, and reports
if the graph predicts as the version does. It ends with the helper.
"""

import json
import os
import shutil
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core.ingest import images
from core.processes.messages import read_framed_message, write_framed_message

MEMORY_BYTES = 6 << 30
"""Address space in bytes for a network, its graph and their activations."""
CPU_S = 600


def export_and_check_onnx_graph(
    header: Mapping[str, Any], manifest_json: bytes, raw: bytes
) -> dict[str, Any]:
    """Export a version's ONNX graph for predictions, and compare it with the version.

    Args:
        header: folder, parts {name: path}, threads, and tasks [[task, number of its images], …].
        manifest_json: manifest of the version.
        raw: images in the order of tasks, uint8 [N, size, size, channels].

    Returns:
        `file` and `tolerance` of the graph; or `detail`, the reason why there is none.
    """
    import torch

    from core.contract.manifest import Manifest
    from core.learning.evaluation import predicting
    from core.learning.export import graph
    from core.learning.export.check import compare_graph_with_version
    from core.learning.export.probability_module import ProbabilityModule

    torch.set_num_threads(header["threads"])
    manifest = Manifest.from_json(json.loads(manifest_json))
    paths = {name: Path(path) for name, path in header["parts"].items()}
    network, method = (
        predicting.load_version_network(manifest, paths),
        predicting.load_prediction_method(manifest, paths),
    )
    size, channels = manifest.image.size, manifest.image.channels
    predictions = ProbabilityModule(
        network, method, manifest.normalise, channels, manifest.logit_divisor
    )
    # A copy, since torch warns about arrays that cannot be written to.
    pixels = np.frombuffer(bytearray(raw), np.uint8).reshape(-1, size, size, channels)
    ends = np.cumsum([count for _, count in header["tasks"]])[:-1]
    # 0 stands for no task: `compare_graph_with_version` then uses the only head.
    samples = {
        task or 0: part
        for (task, _), part in zip(header["tasks"], np.split(pixels, ends), strict=True)
    }
    try:
        name = graph.write_onnx_graph(predictions, channels, size, Path(header["folder"]))[0]
        file = Path(header["folder"]) / name
        checked = compare_graph_with_version(
            file,
            predictions,
            (size, channels),
            samples,
            header["threads"],
            len(pixels),
        )
    except graph.ExportFailed as error:
        return {"detail": str(error)}
    return {"file": str(file), "tolerance": checked.tolerance}


def answer_graph_request() -> None:
    """Answer one request for a version's graph, as the main function of a process."""
    # Libraries must not print into the protocol.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    source = sys.stdin.buffer
    header = json.loads(read_framed_message(source))
    manifest, raw = read_framed_message(source), read_framed_message(source)
    # A helper that was killed cannot end this process by itself.
    threading.Thread(
        target=_exit_and_remove_folder_when_helper_ends,
        args=(source.fileno(), header["folder"]),
        daemon=True,
    ).start()
    images.limit_decoding_process_resources(MEMORY_BYTES, CPU_S)
    write_framed_message(
        sink, json.dumps(export_and_check_onnx_graph(header, manifest, raw)).encode()
    )


def _exit_and_remove_folder_when_helper_ends(source_fd: int, folder: str) -> None:
    """End this process when the prediction helper ends, without leaving files behind."""
    # A raw read: a thread that waits in the buffered file could not be ended with the interpreter.
    while os.read(source_fd, 1):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    answer_graph_request()
