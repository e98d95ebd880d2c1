"""Makes and checks the graph of a version that is asked often: `python -m core.work.predict.graph_maker`.

A process beside the helper, which answers by torch meanwhile: to write a graph takes seconds and half a gigabyte, once.
It reads one request from stdin (JSON, the version's manifest, and images that were asked about), writes the graph into
the folder that the request names, and says whether the graph answers as the version does. It ends with the helper.
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
from core.messages import read_message, write_message

MEMORY_BYTES = 6 << 30
"""Address space for a network, its graph and their activations."""
CPU_S = 600


def make_graph(header: Mapping[str, Any], manifest_json: bytes, raw: bytes) -> dict[str, Any]:
    """Write a version's graph and compare it with the version.

    Args:
        header: folder, parts {name: path}, threads, and tasks [[task, images of it], …].
        manifest_json: of the version.
        raw: the images in the order of tasks, uint8 [N, size, size, channels].

    Returns:
        `file` and `tolerance` of the graph; or `detail`, why there is none.
    """
    import torch

    from core.learn import predicting
    from core.learn.onnx import graph
    from core.learn.onnx.answers import Answers
    from core.learn.onnx.check import check
    from core.protocol.manifest import Manifest

    torch.set_num_threads(header["threads"])
    manifest = Manifest.from_json(json.loads(manifest_json))
    paths = {name: Path(path) for name, path in header["parts"].items()}
    network, method = predicting.load(manifest, paths), predicting.method_of(manifest, paths)
    size, channels = manifest.image.size, manifest.image.channels
    answers = Answers(network, method, manifest.normalise, channels, manifest.divisor)
    pixels = np.frombuffer(bytearray(raw), np.uint8).reshape(-1, size, size, channels)
    ends = np.cumsum([count for _, count in header["tasks"]])[:-1]
    # 0 stands for no task: `check` asks the only head about its images then.
    asked = {task or 0: some for (task, _), some in zip(header["tasks"], np.split(pixels, ends), strict=True)}
    try:
        name = graph.write(answers, channels, size, Path(header["folder"]))[0]
        file = Path(header["folder"]) / name
        checked = check(
            file, answers, manifest.normalise, (size, channels), asked, header["threads"], len(pixels)
        )
    except graph.ExportFailed as error:
        return {"detail": str(error)}
    return {"file": str(file), "tolerance": checked.tolerance}


def main() -> None:
    """Answer one request."""
    # Libraries that print must not speak into the protocol.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    source = sys.stdin.buffer
    header = json.loads(read_message(source))
    manifest, raw = read_message(source), read_message(source)
    threading.Thread(target=_end_with, args=(source.fileno(), header["folder"]), daemon=True).start()
    images.harden_process(MEMORY_BYTES, CPU_S)
    write_message(sink, json.dumps(make_graph(header, manifest, raw)).encode())


def _end_with(source_fd: int, folder: str) -> None:
    """End this process when the helper ends, and leave no file behind."""
    # Not by the buffered file: a thread that waits in it cannot be ended with the interpreter.
    while os.read(source_fd, 1):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main()
