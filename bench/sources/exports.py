"""Label tables that real tools export, read by the client: every image with its label?

    python -m venv tools
    tools/bin/pip install pillow ./client TOOL
    PYTHONPATH=.:client tools/bin/python -m bench.sources.exports

TOOL is `label-studio-sdk`, with whose converter Label Studio exports, `fiftyone`, or both. Each
line is an export: `right`, or what was read; a tool that is not installed is said. Ends with status
1 where an export is read wrong.
"""

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image as Picture

from perennial.pack import PackError, open_batch

_CONFIG = """<View><Image name="image" value="$image"/><Choices name="choice" toName="image" choice="single">
<Choice value="cat"/><Choice value="owl"/></Choices></View>"""
LABELS = {
    f"{'owl' if number % 2 else 'cat'}{number}.jpg": "owl" if number % 2 else "cat"
    for number in range(8)
}


def main() -> int:
    """Check that exports of labelling tools (Label Studio, FiftyOne) are read correctly."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    ).parse_args()
    failed = 0
    for tool, exports in (
        ("label_studio_sdk", export_from_label_studio),
        ("fiftyone", export_from_fiftyone),
    ):
        if importlib.util.find_spec(tool) is None:
            print(f"{tool}: not installed here")
            continue
        with tempfile.TemporaryDirectory() as folder:
            for what, batch in exports(Path(folder)):
                outcome = _compare_batch_labels_with_expected(batch)
                failed += outcome != "right"
                print(f"{what}: {outcome}", flush=True)
    return 1 if failed else 0


def _compare_batch_labels_with_expected(batch: Path) -> str:
    try:
        opened = open_batch(batch)
    except PackError as error:
        return f"refused: {error}"
    rows = opened._images.rows  # type: ignore[attr-defined]
    labels = {row.name.rpartition("/")[2].rpartition("-")[2]: row.label for row in rows}
    return "right" if labels == LABELS else f"{labels}, {opened.warnings}"


def _write_images(folder: Path, prefix: str = "") -> None:
    folder.mkdir(parents=True)
    for number, name in enumerate(LABELS):
        Picture.new("RGB", (16, 16), (number * 20, 50, 90)).save(folder / f"{prefix}{name}")


def export_from_label_studio(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield exports in the formats of Label Studio's converter: JSON, JSON-MIN and CSV."""
    from label_studio_sdk.converter import Converter  # type: ignore[import-not-found]

    tasks = [
        _build_label_studio_task(number, name, label)
        for number, (name, label) in enumerate(LABELS.items(), start=1)
    ]
    (folder / "tasks.json").write_text(json.dumps(tasks))
    converter = Converter(_CONFIG, str(folder), download_resources=False)
    for kind in ("JSON", "JSON-MIN", "CSV"):
        out = folder / kind
        _write_images(out / "images", "3ac2082b-")
        tasks_file, to = str(folder / "tasks.json"), str(out)
        if kind == "CSV":
            converter.convert_to_csv(tasks_file, to, is_dir=False, sep=",", header=True)
        elif kind == "JSON":
            converter.convert_to_json(tasks_file, to, is_dir=False)
        else:
            converter.convert_to_json_min(tasks_file, to, is_dir=False)
        yield f"Label Studio {kind}", out


def _build_label_studio_task(number: int, name: str, label: str) -> dict[str, Any]:
    result = {
        "value": {"choices": [label]}, "id": f"r{number}", "from_name": "choice", "to_name": "image",
        "type": "choices", "origin": "manual",
    }  # fmt: skip
    annotation = {
        "id": number, "completed_by": {"id": 1, "email": "a@example.com"}, "result": [result], "was_cancelled": False,
        "ground_truth": False, "created_at": "2024-05-01T10:00:00Z", "updated_at": "2024-05-01T10:00:00Z",
        "lead_time": 3.5, "unique_id": f"u{number}",
    }  # fmt: skip
    upload = f"3ac2082b-{name}"
    return {
        "id": number, "annotations": [annotation], "file_upload": upload, "predictions": [], "meta": {}, "drafts": [],
        "data": {"image": f"/data/upload/4/{upload}"}, "created_at": "2024-05-01T10:00:00Z", "project": 4,
    }  # fmt: skip


def export_from_fiftyone(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield an export of FiftyOne's image classification data set."""
    import fiftyone as fo  # type: ignore[import-not-found]
    from fiftyone.utils.data.exporters import (  # type: ignore[import-not-found]
        FiftyOneImageClassificationDatasetExporter,
    )

    _write_images(folder / "in")
    exporter = FiftyOneImageClassificationDatasetExporter(
        export_dir=str(folder / "out"), export_media=True, classes=["cat", "owl"]
    )
    with exporter:
        for name, label in LABELS.items():
            exporter.export_sample(str(folder / "in" / name), fo.Classification(label=label))
    yield "FiftyOne", folder / "out"


if __name__ == "__main__":
    raise SystemExit(main())
