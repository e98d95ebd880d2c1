"""Costs of an ONNX export, and how far its answers are from the version's: a line for each kind
of version.

    python -m bench.service.export_onnx --out FILE [--only TEXT] [--seconds N]
    python -m bench.service.export_onnx --out FILE --table

Versions are those of `bench.service.export_matrix`, and variants of small ones. Each is built,
exported twice and checked; its line of JSON goes to FILE. A run takes no version that FILE has
already, and begins none after N seconds: the command is repeated until it says that nothing is
left. `--table` prints what is in FILE as a table, with the versions that there are not.

Seconds are those of PyTorch's exporter and of the check in ONNX Runtime, with one thread. "max Δp"
is the largest difference of a probability between the two, over 21 images of noise in batches of 1,
3 and 17.
"""

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import torch

from bench.service.export_matrix import (
    ARCHITECTURES,
    WAYS,
    explain_unexportable_architecture,
    list_exportable_cases,
)
from bench.service.exported_networks import CHANNELS, MORE, QUICK, ExportCase
from core.learning.export import graph
from core.learning.export.check import compare_graph_with_version
from core.learning.export.graph import ExportFailed
from core.learning.torchvision_import import import_torchvision_models


@dataclass(frozen=True)
class ExportMeasurement:
    """Measured size, time and error of a version's ONNX export; `refused`: why there is none."""

    version: str
    export_s: float = 0.0
    check_s: float = 0.0
    bytes: int = 0
    max_difference: float = 0.0
    tolerance: float = 0.0
    is_same_twice: bool = True
    refused: str | None = None


def main() -> None:
    """Measure missing ONNX exports, or print the table of measured ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="lines of JSON, added to"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="versions whose names have this text in them"
    )
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="after which no further version is begun"
    )
    parser.add_argument("--table", action="store_true", help="print the table instead")
    arguments = parser.parse_args()
    done = _read_export_measurements(arguments.out)
    if arguments.table:
        print("\n".join(_render_export_table(done)))
        return
    torch.set_num_threads(1)
    import_torchvision_models()  # importable beside a CPU build of torch
    end = time.monotonic() + arguments.seconds
    cases = {**QUICK, **MORE, **list_exportable_cases()}
    remaining = [name for name in cases if name not in done and arguments.only in name]
    while remaining and time.monotonic() < end:
        measurement = _measure_export(name := remaining.pop(0), cases[name])
        print(measurement, flush=True)
        with arguments.out.open("a") as file:
            file.write(json.dumps(asdict(measurement)) + "\n")
    print(f"{len(remaining)} versions are left.")


def _read_export_measurements(path: Path) -> dict[str, ExportMeasurement]:
    if not path.exists():
        return {}
    measured = [ExportMeasurement(**json.loads(text)) for text in path.read_text().splitlines()]
    return {one.version: one for one in measured}


def _measure_export(name: str, case: ExportCase) -> ExportMeasurement:
    prediction_module = case.build_prediction_module()
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        try:
            (file, *_) = graph.write_onnx_graph(
                prediction_module, CHANNELS, case.size, Path(folder)
            )
            exported = time.perf_counter()
            path = Path(folder, file)
            comparison = compare_graph_with_version(
                path, prediction_module, (case.size, CHANNELS), {}, threads=1
            )
        except ExportFailed as error:
            return ExportMeasurement(name, refused=str(error))
        end = time.perf_counter()
        data = path.read_bytes()
        graph.write_onnx_graph(prediction_module, CHANNELS, case.size, Path(folder))
        is_same = path.read_bytes() == data
    seconds = (round(exported - begin, 1), round(end - exported, 1))
    return ExportMeasurement(
        name, *seconds, len(data), comparison.max_difference, comparison.tolerance, is_same
    )


def _render_export_table(measured: dict[str, ExportMeasurement]) -> list[str]:
    """Render a table of every measured ONNX export, and a list of missing ones."""
    names = [f"{architecture}, {way}" for architecture in ARCHITECTURES for way in WAYS]
    order = {name: number for number, name in enumerate([*names, *QUICK, *MORE])}
    lines = [
        "| version | export s | check s | bytes | max Δp | allowed |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for measurement in sorted(measured.values(), key=lambda line: order[line.version]):
        other = "" if measurement.is_same_twice else ", OTHER BYTES when made again"
        numbers = (
            f"{measurement.export_s} | {measurement.check_s} | {measurement.bytes:,} | "
            f"{measurement.max_difference:.0e} | {measurement.tolerance:.0e}"
        )
        lines.append(f"| {measurement.version}{other} | {measurement.refused or numbers} |")
    lines += [
        "",
        "| architectures | ways to answer that none of their versions has |",
        "| --- | --- |",
    ]
    none = {
        name: [reason for way in WAYS if (reason := explain_unexportable_architecture(name, way))]
        for name in ARCHITECTURES
    }
    for reasons, group in groupby(
        sorted(none, key=lambda name: none[name]), key=lambda name: none[name]
    ):
        names_once = dict.fromkeys(name.partition("/")[0] for name in group)
        lines.append(f"| {', '.join(names_once)} | {'; '.join(reasons)} |")
    return lines


if __name__ == "__main__":
    main()
