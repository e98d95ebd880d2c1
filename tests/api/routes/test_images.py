"""The images of a task over HTTP: listed, one as a picture, several on a sheet; and what is said
when they are gone.
"""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.database.tables import Model, Task
from core.ingest.dataset import write_image_dataset_file
from tests.api.conftest import create_model
from tests.openapi import check_schema

N, SIDE = 12, 8
PIXELS = np.random.default_rng(0).integers(0, 256, (N, SIDE, SIDE, 3), np.uint8)
LABELS = np.array([0, 1] * 6, np.int64)


def store_dataset(client, tmp_path: Path, pixels=PIXELS, labels=LABELS) -> str:
    """Put a dataset into the store and return its digest."""
    path = tmp_path / "dataset"
    write_image_dataset_file(path, labels, pixels.shape[1:], [pixels])
    sha256, _ = client.app.state.blobs.put_file(path)
    return str(sha256)


def change_first_task(client, **fields) -> None:
    with client.app.state.database.write() as session:
        task = session.query(Task).filter_by(number=1).one()
        for name, value in fields.items():
            setattr(task, name, value)


@pytest.fixture
def url(client, model, publish, tmp_path) -> str:
    """A task with twelve held-out images of two classes."""
    publish(model)
    change_first_task(client, held_out_sha256=store_dataset(client, tmp_path))
    return f"/v1/models/{model}/tasks/1"


def read_png_response(answer) -> np.ndarray:
    assert answer.status_code == 200 and answer.headers["content-type"] == "image/png", answer.text
    return np.asarray(Image.open(io.BytesIO(answer.content)))


def test_images_are_listed_with_their_labels_in_pages(client, url):
    page = client.get(f"{url}/images?limit=7").json()
    rest = client.get(f"{url}/images?limit=7&cursor={page['next_cursor']}").json()
    found = page["items"] + rest["items"]
    assert [item["index"] for item in found] == list(range(N)) and rest["next_cursor"] is None
    assert [item["label"] for item in found] == ["cat", "dog"] * 6 and page["total"] == N
    check_schema(client, "TaskImagePage", page)


def test_those_of_one_class_come_alone(client, url):
    page = client.get(f"{url}/images?class=dog&limit=4").json()
    assert [item["index"] for item in page["items"]] == [1, 3, 5, 7] and page["total"] == 6
    rest = client.get(f"{url}/images?class=dog&limit=4&cursor={page['next_cursor']}").json()
    assert [item["index"] for item in rest["items"]] == [9, 11]
    assert client.get(f"{url}/images?class=cow").status_code == 422


def test_a_picture_has_the_pixels_that_are_learned(client, url):
    assert np.array_equal(read_png_response(client.get(f"{url}/images/held_out/5.png")), PIXELS[5])


def test_grey_images_are_grey_pictures(client, url, tmp_path):
    grey = PIXELS[:3, :, :, :1]
    change_first_task(client, held_out_sha256=store_dataset(client, tmp_path, grey, LABELS[:3]))
    assert np.array_equal(
        read_png_response(client.get(f"{url}/images/held_out/2.png")), grey[2, :, :, 0]
    )
    assert read_png_response(client.get(f"{url}/sheet.png?rows=0,1")).shape == (SIDE, 2 * SIDE)


def test_a_sheet_shows_images_in_the_order_asked_for_eight_in_a_row(client, url):
    rows = [11, 0, 1, 2, 3, 4, 5, 6, 7]
    whole = read_png_response(client.get(f"{url}/sheet.png?rows={','.join(map(str, rows))}"))
    assert whole.shape == (2 * SIDE, 8 * SIDE, 3)
    assert np.array_equal(whole[:SIDE, :SIDE], PIXELS[11])
    assert np.array_equal(whole[SIDE:, :SIDE], PIXELS[7]) and not whole[SIDE:, SIDE:].any()


def test_tiles_of_large_images_are_small(client, url, tmp_path):
    large = np.full((2, 300, 300, 3), 7, np.uint8)
    change_first_task(client, held_out_sha256=store_dataset(client, tmp_path, large, LABELS[:2]))
    assert read_png_response(client.get(f"{url}/sheet.png?rows=0,1")).shape == (128, 256, 3)
    assert read_png_response(client.get(f"{url}/images/held_out/1.png")).shape == (300, 300, 3)


@pytest.mark.parametrize(
    ("rest", "status"),
    [
        ("images/held_out/12.png", 404),
        ("images/other/1.png", 422),
        ("images/held_out/-1.png", 422),
        ("images?split=other", 422),
        ("images?cursor=x", 422),
        ("sheet.png", 422),
        ("sheet.png?rows=12", 422),
        ("sheet.png?rows=a", 422),
        (f"sheet.png?rows={','.join(['1'] * 65)}", 422),
    ],
)
def test_what_is_not_there_or_too_much_is_typed(client, url, rest, status):
    answer = client.get(f"{url}/{rest}")
    assert (
        answer.status_code == status
        and answer.headers["content-type"] == "application/problem+json"
    )


@pytest.mark.parametrize("rest", ["images/held_out/3.png", "sheet.png?rows=3,4"])
def test_a_client_that_has_the_picture_is_told_so_until_the_data_is_deleted(client, url, rest):
    first = client.get(f"{url}/{rest}")
    assert first.headers["cache-control"] == "private, no-cache"
    known = {"If-None-Match": first.headers["etag"]}
    again = client.get(f"{url}/{rest}", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(f"{url}/sheet.png?rows=3", headers=known).status_code == 200
    assert client.delete(f"{url}/data").status_code == 204
    gone = client.get(f"{url}/{rest}", headers=known)
    assert gone.status_code == 404 and "was deleted on" in gone.json()["detail"]


@pytest.mark.parametrize("rest", ["images", "images/held_out/3.png", "sheet.png?rows=3"])
def test_held_out_images_that_are_only_counted_are_gone_with_a_sentence(client, url, rest):
    with client.app.state.database.write() as session:
        session.query(Model).one().held_out = "counts"
    change_first_task(client, held_out_deleted_at=1e9)
    answer = client.get(f"{url}/{rest}")
    assert answer.status_code == 410 and '"held_out": "counts"' in answer.json()["detail"]
    assert answer.json()["type"] == "/problems/gone"


def test_training_images_go_with_their_days_and_are_shown_until_then(client, url, tmp_path):
    waiting = client.get(f"{url}/images?split=train")
    assert waiting.status_code == 409 and "no images yet" in waiting.json()["detail"]
    change_first_task(client, train_sha256=store_dataset(client, tmp_path, PIXELS[::-1]))
    assert np.array_equal(read_png_response(client.get(f"{url}/images/train/0.png")), PIXELS[-1])
    change_first_task(client, train_deleted_at=1e9)
    answer = client.get(f"{url}/images/train/0.png")
    assert answer.status_code == 410 and "training_data_days" in answer.json()["detail"]


def test_images_of_another_owner_are_not_there(client, url, key_of):
    for rest in ("images", "images/held_out/3.png", "sheet.png?rows=3"):
        assert client.get(f"{url}/{rest}", headers=key_of("other")).status_code == 404
        assert client.get(f"{url}/{rest}", headers=key_of("admin", "scrape")).status_code == 403
        assert client.get(f"{url}/{rest}", headers=key_of("admin", "read")).status_code == 200


def test_labels_of_a_data_model_are_those_of_its_fixed_classes(client, publish, tmp_path):
    create_model(client, "fixed", scenario="data", classes=["ant", "cat", "dog"])
    publish("fixed")
    change_first_task(client, held_out_sha256=store_dataset(client, tmp_path, labels=LABELS + 1))
    found = client.get("/v1/models/fixed/tasks/1/images?limit=2").json()["items"]
    assert [item["label"] for item in found] == ["cat", "dog"]


def test_damaged_images_are_not_shown(client, url, tmp_path):
    with client.app.state.database.read() as session:
        sha256 = session.query(Task).one().held_out_sha256
    path = client.app.state.blobs.fetch_verified_file(sha256)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    answer = client.get(f"{url}/images/held_out/11.png")
    assert answer.status_code == 500 and answer.json()["type"] == "/problems/store-corrupt"
