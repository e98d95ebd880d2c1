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


def _build_rows(first: str, separator: str = ",", name: str = "{}", label: str = "{}") -> str:
    lines = [separator.join((name.format(i), label.format(LABELS[i]))) for i in IMAGES]
    return "\n".join([first, *lines] if first else lines) + "\n"


def _get_base_name(image: str) -> str:
    return image.rpartition("/")[2]


def _build_sample(table: str, content: Any, **options: Any) -> Sample:
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    return {**FILES, table: text}, LABELS, options


def _build_task(number: int, image: str) -> dict[str, Any]:
    upload = f"3ac2082b-{_get_base_name(image)}"
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


def _build_task_by_tool(image: str) -> dict[str, Any]:
    return {
        "image": f"/data/upload/4/{_get_base_name(image)}",
        "id": 1,
        "choice": LABELS[image],
        "annotator": 1,
        "annotation_id": 7,
        "created_at": "2024-05-01T10:00:00Z",
        "updated_at": "2024-05-01T10:00:00Z",
        "lead_time": 2.5,
    }


def _build_csv(rows: list[dict[str, Any]]) -> str:
    return (
        "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n"
    )


def _build_json_lines(values: list[Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def _build_roboflow() -> Sample:
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


def _build_vertex(image: str) -> dict[str, Any]:
    return {
        "imageGcsUri": f"gs://bucket/{image}",
        "classificationAnnotation": {"displayName": LABELS[image], "annotationResourceLabels": {}},
        "dataItemResourceLabels": {"aiplatform.googleapis.com/ml_use": "training"},
    }


def _build_manifest(image: str, key: str) -> dict[str, Any]:
    about = {
        "confidence": 0.9,
        "class-name": LABELS[image],
        "type": "groundtruth/image-classification",
    }
    return {"source-ref": f"s3://bucket/{image}", key: 0, f"{key}-metadata": about}


def _build_edge_impulse() -> Sample:
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


def _build_synsets(mapping: str, text: str) -> Sample:
    wnids = {"cat": "n02121620", "owl": "n01621127"}
    labels = {f"train/{wnids[name[:3]]}/{name}.JPEG": name[:3] for name in NAMES}
    return {**dict.fromkeys(labels, ""), mapping: text}, labels, {}


def _build_teachable() -> Sample:
    labels = {
        f"Class {1 + number % 2}-!-{number}.jpg": f"Class {1 + number % 2}" for number in range(8)
    }
    return (
        {**dict.fromkeys(labels, ""), "manifest.json": '{"type": "image", "version": "2.4.10"}'},
        labels,
        {},
    )


def _build_pattern_sample() -> Sample:
    labels = {f"photos/great_owl_{number}.jpg" if number % 2 else f"photos/cat_{number}.jpg":
              "great_owl" if number % 2 else "cat" for number in range(8)}  # fmt: skip
    return dict.fromkeys(labels, ""), labels, {"names_pattern": "{label}_{number}"}


SAMPLES: dict[str, Sample] = {
    "labels.csv of Perennial": _build_sample("labels.csv", _build_rows("path,label")),
    "CSV": _build_sample("annotations.csv", _build_rows("file_name,category")),
    "CSV, semicolons, byte order mark": _build_sample(
        "t.csv", _build_rows("Bild;label", ";").encode("utf-8-sig")
    ),
    "TSV in UTF-16": _build_sample("t.tsv", _build_rows("image\tlabel", "\t").encode("utf-16")),
    "CSV, bars": _build_sample("t.csv", _build_rows("image|label", "|")),
    "CSV without a header": _build_sample("list.csv", _build_rows("")),
    "CSV of a path, a name and a class": _build_sample(
        "t.csv",
        "id,filepath,class_id,class name\n"
        + "".join(f"{n},{i},{int(LABELS[i] == 'owl')},{LABELS[i]}\n" for n, i in enumerate(IMAGES)),
    ),
    "CSV of four columns, two named": _build_sample(
        "t.csv",
        "shot,photo,site,kind\n"
        + "".join(f"a,{_get_base_name(i)},north,{LABELS[i]}\n" for i in IMAGES),
        image_column="photo",
        label_column="kind",
    ),
    "CSV in a folder beside the images": _build_sample(
        "meta/t.csv", _build_rows("path,label", name="../{}")
    ),
    "JSON list": _build_sample(
        "t.json", [{"file": _get_base_name(i), "label": LABELS[i]} for i in IMAGES]
    ),
    "JSON object": _build_sample("t.json", {_get_base_name(i): LABELS[i] for i in IMAGES}),
    "JSONL": _build_sample(
        "t.jsonl",
        _build_json_lines([{"file_name": i, "label": LABELS[i], "width": 8} for i in IMAGES]),
    ),
    "Kaggle": _build_sample(
        "train.csv",
        "id,label\n" + "".join(f"{_get_base_name(i)[:-4]},{LABELS[i]}\n" for i in IMAGES),
    ),
    "Label Studio JSON": _build_sample(
        "project-1.json", [_build_task(n, i) for n, i in enumerate(IMAGES)]
    ),
    "Label Studio JSON-MIN": _build_sample(
        "project-1.json", [_build_task_by_tool(i) for i in IMAGES]
    ),
    "Label Studio CSV": _build_sample(
        "project-1.csv", _build_csv([_build_task_by_tool(i) for i in IMAGES])
    ),
    "Roboflow": _build_roboflow(),
    "Vertex CSV": _build_sample(
        "v.csv", "".join(f"TRAINING,gs://bucket/{i},{LABELS[i]}\n" for i in IMAGES)
    ),
    "Vertex JSONL": _build_sample("v.jsonl", _build_json_lines([_build_vertex(i) for i in IMAGES])),
    "SageMaker manifest": _build_sample(
        "output.manifest", _build_json_lines([_build_manifest(i, "animals") for i in IMAGES])
    ),
    "Rekognition manifest": _build_sample(
        "train.manifest",
        _build_json_lines([_build_manifest(i, f"set_{LABELS[i]}") for i in IMAGES]),
    ),
    "FiftyOne": _build_sample(
        "labels.json",
        {
            "classes": ["cat", "owl"],
            "labels": {_get_base_name(i)[:-4]: int(LABELS[i] == "owl") for i in IMAGES},
        },
    ),
    "FiftyOne with names": _build_sample(
        "labels.json",
        {"classes": None, "labels": {_get_base_name(i)[:-4]: LABELS[i] for i in IMAGES}},
    ),
    "make-sense CSV": _build_sample(
        "labels_my-project.csv", "\n".join(f'{_get_base_name(i)},"[{LABELS[i]}]"' for i in IMAGES)
    ),
    "make-sense JSON": _build_sample(
        "labels_my-project.json",
        [{"image": _get_base_name(i), "annotations": [LABELS[i]]} for i in IMAGES],
    ),
    "Edge Impulse": _build_edge_impulse(),
    "Teachable Machine": _build_teachable(),
    "ImageNet, LOC_synset_mapping.txt": _build_synsets(
        "LOC_synset_mapping.txt", "n01621127 owl, bird of Minerva\nn02121620 cat, true cat\n"
    ),
    "ImageNet, words.txt": _build_synsets(
        "words.txt", "n01621127\towl, hooter\nn02121620\tcat, true cat\n"
    ),
    "names of files": _build_pattern_sample(),
}
"""By the name of the source."""
