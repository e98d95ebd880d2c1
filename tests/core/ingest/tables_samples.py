"""Label tables as other tools write them, made here: eight images of two classes, and the labels
that are expected.
"""

import json
from typing import Any

NAMES = [f"{'owl' if number % 2 else 'cat'}{number}" for number in range(8)]
IMAGES = [f"images/{name}.jpg" for name in NAMES]
LABELS = {image: "owl" if "owl" in image else "cat" for image in IMAGES}
FILES: dict[str, str | bytes] = dict.fromkeys(IMAGES, "")
Sample = tuple[dict[str, str | bytes], dict[str, str], dict[str, Any]]
"""Files, expected labels by path, options."""


def _rows(first: str, separator: str = ",", name: str = "{}", label: str = "{}") -> str:
    lines = [separator.join((name.format(i), label.format(LABELS[i]))) for i in IMAGES]
    return "\n".join([first, *lines] if first else lines) + "\n"


def _base(image: str) -> str:
    return image.rpartition("/")[2]


def _with(table: str, content: Any, **options: Any) -> Sample:
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    return {**FILES, table: text}, LABELS, options


def _task(number: int, image: str) -> dict[str, Any]:
    upload = f"3ac2082b-{_base(image)}"
    result = [
        {
            "value": {"choices": [LABELS[image]]},
            "from_name": "choice",
            "to_name": "image",
            "type": "choices",
        }
    ]
    return {
        "id": number,
        "annotations": [{"id": number, "was_cancelled": False, "result": result, "lead_time": 3.1}],
        "file_upload": upload,
        "data": {"image": f"/data/upload/4/{upload}"},
        "predictions": [],
    }


def _by_tool(image: str) -> dict[str, Any]:
    return {
        "image": f"/data/upload/4/{_base(image)}",
        "id": 1,
        "choice": LABELS[image],
        "annotator": 1,
        "annotation_id": 7,
        "created_at": "2024-05-01T10:00:00Z",
        "updated_at": "2024-05-01T10:00:00Z",
        "lead_time": 2.5,
    }


def _csv(rows: list[dict[str, Any]]) -> str:
    return (
        "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n"
    )


def _lines(values: list[Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def _roboflow() -> Sample:
    files: dict[str, str | bytes] = {}
    labels = {}
    for part, names in (("train", NAMES[:6]), ("valid", NAMES[6:])):
        rows = ["filename, cat, owl"]
        for name in names:
            path = f"{part}/{name}.jpg"
            files[path], labels[path] = "", name[:3]
            rows.append(f"{name}.jpg, {int(labels[path] == 'cat')}, {int(labels[path] == 'owl')}")
        files[f"{part}/_classes.csv"] = "\n".join(rows) + "\n"
    return files, labels, {}


def _vertex(image: str) -> dict[str, Any]:
    return {
        "imageGcsUri": f"gs://bucket/{image}",
        "classificationAnnotation": {"displayName": LABELS[image], "annotationResourceLabels": {}},
        "dataItemResourceLabels": {"aiplatform.googleapis.com/ml_use": "training"},
    }


def _manifest(image: str, key: str) -> dict[str, Any]:
    about = {
        "confidence": 0.9,
        "class-name": LABELS[image],
        "type": "groundtruth/image-classification",
    }
    return {"source-ref": f"s3://bucket/{image}", key: 0, f"{key}-metadata": about}


def _edge_impulse() -> Sample:
    files: dict[str, str | bytes] = {}
    labels, entries = {}, []
    for number, name in enumerate(NAMES):
        part = "testing" if number >= 6 else "training"
        path = f"{part}/{name}.jpg.{number}.ingestion.jpg"
        files[path], labels[path] = "", name[:3]
        entries.append(
            {
                "path": path,
                "name": name,
                "category": part,
                "label": {"type": "label", "label": name[:3]},
            }
        )
    files["info.labels"] = json.dumps({"version": 1, "files": entries}, indent=4)
    return files, labels, {}


def _synsets(mapping: str, text: str) -> Sample:
    wnids = {"cat": "n02121620", "owl": "n01621127"}
    labels = {f"train/{wnids[name[:3]]}/{name}.JPEG": name[:3] for name in NAMES}
    return {**dict.fromkeys(labels, ""), mapping: text}, labels, {}


def _teachable() -> Sample:
    labels = {
        f"Class {1 + number % 2}-!-{number}.jpg": f"Class {1 + number % 2}" for number in range(8)
    }
    return (
        {**dict.fromkeys(labels, ""), "manifest.json": '{"type": "image", "version": "2.4.10"}'},
        labels,
        {},
    )


def _named() -> Sample:
    labels = {f"photos/great_owl_{number}.jpg" if number % 2 else f"photos/cat_{number}.jpg":
              "great_owl" if number % 2 else "cat" for number in range(8)}  # fmt: skip
    return dict.fromkeys(labels, ""), labels, {"names_pattern": "{label}_{number}"}


SAMPLES: dict[str, Sample] = {
    "labels.csv of Perennial": _with("labels.csv", _rows("path,label")),
    "CSV": _with("annotations.csv", _rows("file_name,category")),
    "CSV, semicolons, byte order mark": _with(
        "t.csv", _rows("Bild;label", ";").encode("utf-8-sig")
    ),
    "TSV in UTF-16": _with("t.tsv", _rows("image\tlabel", "\t").encode("utf-16")),
    "CSV, bars": _with("t.csv", _rows("image|label", "|")),
    "CSV without a header": _with("list.csv", _rows("")),
    "CSV of a path, a name and a class": _with(
        "t.csv",
        "id,filepath,class_id,class name\n"
        + "".join(f"{n},{i},{int(LABELS[i] == 'owl')},{LABELS[i]}\n" for n, i in enumerate(IMAGES)),
    ),
    "CSV of four columns, two named": _with(
        "t.csv",
        "shot,photo,site,kind\n" + "".join(f"a,{_base(i)},north,{LABELS[i]}\n" for i in IMAGES),
        image_column="photo",
        label_column="kind",
    ),
    "CSV in a folder beside the images": _with("meta/t.csv", _rows("path,label", name="../{}")),
    "JSON list": _with("t.json", [{"file": _base(i), "label": LABELS[i]} for i in IMAGES]),
    "JSON object": _with("t.json", {_base(i): LABELS[i] for i in IMAGES}),
    "JSONL": _with(
        "t.jsonl", _lines([{"file_name": i, "label": LABELS[i], "width": 8} for i in IMAGES])
    ),
    "Kaggle": _with(
        "train.csv", "id,label\n" + "".join(f"{_base(i)[:-4]},{LABELS[i]}\n" for i in IMAGES)
    ),
    "Label Studio JSON": _with("project-1.json", [_task(n, i) for n, i in enumerate(IMAGES)]),
    "Label Studio JSON-MIN": _with("project-1.json", [_by_tool(i) for i in IMAGES]),
    "Label Studio CSV": _with("project-1.csv", _csv([_by_tool(i) for i in IMAGES])),
    "Roboflow": _roboflow(),
    "Vertex CSV": _with(
        "v.csv", "".join(f"TRAINING,gs://bucket/{i},{LABELS[i]}\n" for i in IMAGES)
    ),
    "Vertex JSONL": _with("v.jsonl", _lines([_vertex(i) for i in IMAGES])),
    "SageMaker manifest": _with(
        "output.manifest", _lines([_manifest(i, "animals") for i in IMAGES])
    ),
    "Rekognition manifest": _with(
        "train.manifest", _lines([_manifest(i, f"set_{LABELS[i]}") for i in IMAGES])
    ),
    "FiftyOne": _with(
        "labels.json",
        {
            "classes": ["cat", "owl"],
            "labels": {_base(i)[:-4]: int(LABELS[i] == "owl") for i in IMAGES},
        },
    ),
    "FiftyOne with names": _with(
        "labels.json", {"classes": None, "labels": {_base(i)[:-4]: LABELS[i] for i in IMAGES}}
    ),
    "make-sense CSV": _with(
        "labels_my-project.csv", "\n".join(f'{_base(i)},"[{LABELS[i]}]"' for i in IMAGES)
    ),
    "make-sense JSON": _with(
        "labels_my-project.json", [{"image": _base(i), "annotations": [LABELS[i]]} for i in IMAGES]
    ),
    "Edge Impulse": _edge_impulse(),
    "Teachable Machine": _teachable(),
    "ImageNet, LOC_synset_mapping.txt": _synsets(
        "LOC_synset_mapping.txt", "n01621127 owl, bird of Minerva\nn02121620 cat, true cat\n"
    ),
    "ImageNet, words.txt": _synsets(
        "words.txt", "n01621127\towl, hooter\nn02121620\tcat, true cat\n"
    ),
    "names of files": _named(),
}
"""By the name of the source."""
