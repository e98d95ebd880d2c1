"""Everything that a service answers about what it holds: models, tasks, versions, jobs and
downloads.
"""

from collections.abc import Callable, Collection
from typing import Any

from tests.before_after import batches
from tests.before_after.player import Player

Json = dict[str, Any]
LIST = "?limit=200"


def read_everything(
    player: Player,
    chapter: str,
    *,
    whole: set[tuple[str, int]] | None,
    names: Collection[str] | None = None,
    is_asked: Callable[[str, int], bool] = lambda _name, _number: True,
) -> set[tuple[str, int]]:
    """Read everything into a chapter and return (model, number) of the versions.

    Args:
        whole: versions whose downloads are compared byte by byte; None: all.
        names: of the models that are read; None: all.
        is_asked: tells by a model's name and a version's number whether that version predicts;
            by default all do.
    """
    player.chapter(chapter)
    for path in ("/v1/jobs", "/v1/audit", "/v1/usage", "/v1/keys"):
        player.json(path + LIST)
    owner = player.http.get("/v1/usage?by=owner").json()["items"][0]  # summed up now and then
    player.note("fields of /v1/usage?by=owner", sorted([*owner, *owner["bytes"]]))
    models = player.json(f"/v1/models{LIST}")["items"]
    found: set[tuple[str, int]] = set()
    for model in (one for one in models if names is None or one["name"] in names):
        found |= _read_model(player, model, whole, is_asked)
    return found


def _read_model(
    player: Player,
    model: Json,
    whole: set[tuple[str, int]] | None,
    is_asked: Callable[[str, int], bool],
) -> set[tuple[str, int]]:
    path, name = f"/v1/models/{model['name']}", model["name"]
    for noun in ("", "/metrics", "/metrics?version=1", "/memory", "/aliases/production/history"):
        player.json(path + noun)
    for task in player.json(f"{path}/tasks{LIST}")["items"]:
        player.json(f"{path}/tasks/{task['number']}")
    for job in player.http.get(f"/v1/jobs?model={name}&limit=200").json()["items"]:
        _read_job(player, job["id"])
    numbers = [version["number"] for version in player.json(f"{path}/versions{LIST}")["items"]]
    for number in numbers:
        version = f"{path}/versions/{number}"
        player.json(version)
        for file in player.json(f"{version}/files")["items"]:
            player.ask("GET", f"{version}/files/{file['name']}")
        player.download(f"{version}/download", whole=whole is None or (name, number) in whole)
        if is_asked(name, number):
            _request_predictions(player, version, model, numbers)
    return {(name, number) for number in numbers}


def _request_predictions(player: Player, version: str, model: Json, numbers: list[int]) -> None:
    """Ask each head to predict four digits and a file that is no image, and one head to predict
    the digits as arrays.
    """
    images = [batches.read_digit_images(digit, 120, 1)[0] for digit in (0, 1, 2, 3)]
    files = [
        ("image", (f"{n}.png", batches.encode_png(image), "image/png"))
        for n, image in enumerate(images)
    ]
    files.append(("image", ("broken.png", b"no image", "image/png")))
    heads = [f"?task={number}" for number in numbers[1:]] if model["scenario"] == "task" else [""]
    for head in heads:
        player.ask("POST", f"{version}/predict{head}", "files", files=files)
    arrays = {"images": [image.tolist() for image in images]}
    player.ask("POST", f"{version}/predict{heads[0] if heads else ''}", "arrays", json=arrays)


def _read_job(player: Player, job: str) -> None:
    """Read a job with its log and measurements, but only the fields of what depends on the clock."""
    player.json(f"/v1/jobs/{job}")
    events = _list_items(player, f"/v1/jobs/{job}/events")
    kept = [event for event in events if event["type"] in ("state", "metric", "log")]
    player.note(
        f"events of {job}", [event for event in kept if not _is_training_progress(event["data"])]
    )
    fields = {(event["type"], name) for event in events for name in ("id", "at", *event["data"])}
    player.note(f"fields of events of {job}", sorted(map(list, fields)))
    lines = _list_items(player, f"/v1/jobs/{job}/logs")
    player.note(f"log of {job}", [line for line in lines if not _is_training_progress(line)])
    points = _list_items(player, f"/v1/jobs/{job}/metrics")
    player.note(f"points of {job}", [point for point in points if point["name"] != "loss"])


def _is_training_progress(line: Json) -> bool:
    """Return whether a line of the log tells how far training is."""
    return str(line.get("message", "")).startswith("Epoch ")


def _list_items(player: Player, path: str) -> list[Json]:
    """Return all items of a list, without recording them."""
    items: list[Json] = []
    cursor: str | None = ""
    while cursor is not None:
        given = {"limit": 200, **({"cursor": cursor} if cursor else {})}
        page = player.http.get(path, params=given).json()
        items += page["items"]
        cursor = page["next_cursor"]
    return items
