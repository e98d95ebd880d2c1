"""Stage 4 of predict, the process beside the API that holds torch: `python -m
core.predictions.helper.helper THREADS`.

It keeps recent versions loaded, answers one turn at a time, and ends when stdin closes. If it dies,
only the present request fails.
"""

import os
import sys

from core.ingest import images
from core.processes.messages import write_framed_message

NETWORK_BYTES = 6 << 30
"""Address space in bytes for networks and their activations."""


def run_prediction_helper(threads: int) -> None:
    """Run the prediction helper: load torch, limit this process, report ready, and serve."""
    # Libraries must not print into the protocol.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import torch

    from core.predictions.helper.graphs import OnnxGraphMaker
    from core.predictions.helper.serving import CPU_S, serve_prediction_requests

    torch.set_num_threads(threads)
    # After torch is loaded, since the limit is on what is mapped from here on.
    images.limit_decoding_process_resources(NETWORK_BYTES, CPU_S)
    write_framed_message(sink, b'{"ready": true}')
    graphs = OnnxGraphMaker(threads)
    try:
        serve_prediction_requests(sys.stdin.buffer, sink, graphs)
    finally:
        graphs.end_export_process()


if __name__ == "__main__":
    run_prediction_helper(int(sys.argv[1]))
