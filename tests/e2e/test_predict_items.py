"""Predictions of several files through HTTP: each gets an answer or an error of its own, under its name."""

import io

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.e2e import small
from tests.rest import Rest

pytestmark = pytest.mark.slow

URL = "/v1/models/items/versions/latest/predict"


@pytest.fixture(scope="module")
def learned(client: Rest) -> dict[str, bytes]:
    """Teach a model the digits 0 to 3; one PNG of each by its name."""
    small.create(client, "items", {"name": "analytic", "projection": 50})
    small.learn(client, "items", *small.WEEKS[:2])
    return {f"{digit}.png": small.first_image(small.WEEKS[digit // 2], f"{digit}/") for digit in range(4)}


def test_one_bad_file_costs_no_other_its_answer(client: Rest, learned: dict[str, bytes]) -> None:
    good = list(learned.items())
    sent = [good[0], ("notes.txt", b"not an image"), good[1], ("cut.png", good[2][1][:60]), good[3]]
    files = [("file", (name, data, "application/octet-stream")) for name, data in sent]
    answer = client.call("POST", URL, files=files).json()
    items = answer["predictions"]
    assert [item["name"] for item in items] == [name for name, _ in sent]
    assert ["error" in item for item in items] == [False, True, False, True, False]
    assert items[1]["error"]["code"] == items[3]["error"]["code"] == "image-invalid"
    assert items[1]["error"]["detail"].startswith("The image cannot be used: not a PNG")
    assert items[3]["error"]["detail"] == "The image cannot be used: damaged or cut off."
    alone = [client.call("POST", URL, files={"image": sent[i]}).json()["predictions"][0] for i in (0, 2, 4)]
    for item, single in zip((items[0], items[2], items[4]), alone, strict=True):
        assert item["label"] == single["label"] and item["probability"] == pytest.approx(
            single["probability"], abs=1e-6
        )


def test_files_that_all_are_bad_are_answered_each_and_a_single_one_is_a_422(
    client: Rest, learned: dict[str, bytes]
) -> None:
    bad = ("image", ("a.png", b"\x89PNG\r\n\x1a\n", "image/png"))
    answer = client.http.post(URL, files=[bad, bad])
    assert answer.status_code == 200
    assert ["error" in item for item in answer.json()["predictions"]] == [True, True]
    single = client.http.post(URL, files=[bad])
    assert single.status_code == 422 and single.json()["type"] == "/problems/image-invalid"
    assert single.json()["detail"] == "The image cannot be used: damaged or cut off."


def test_an_image_beyond_the_limit_is_an_error_of_its_own(client: Rest, learned: dict[str, bytes]) -> None:
    huge = io.BytesIO()
    Image.new("L", (5000, 5000)).save(huge, "PNG")
    files = [("images", ("huge.png", huge.getvalue(), "image/png")), ("images", next(iter(learned.items())))]
    first, second = client.call("POST", URL, files=files).json()["predictions"]
    assert "5000×5000 pixels, more than" in first["error"]["detail"] and "label" in second


def test_the_most_probable_labels_come_first_as_many_as_asked_for(
    client: Rest, learned: dict[str, bytes]
) -> None:
    file = {"file": ("x.png", learned["2.png"], "image/png")}
    every = client.call("POST", URL, files=file).json()["predictions"][0]
    assert set(every["probabilities"]) == {"0", "1", "2", "3"}
    assert list(every["probabilities"].values()) == sorted(every["probabilities"].values(), reverse=True)
    two = client.call("POST", f"{URL}?top_k=2", files=file).json()["predictions"][0]
    assert list(two["probabilities"].items()) == list(every["probabilities"].items())[:2]
    assert two["label"] == next(iter(two["probabilities"]))
    refused = client.http.post(f"{URL}?top_k=0", files=file)
    assert refused.status_code == 422 and "top_k" in refused.text


def test_arrays_are_answered_in_order_without_names(client: Rest, learned: dict[str, bytes]) -> None:
    pixels = np.rint(load_digits().images[0] * (255 / 16)).astype(int).tolist()
    answer = client.call("POST", URL, json={"images": [pixels, [[300]], pixels]}).json()
    first, second, third = answer["predictions"]
    assert first == third and first["name"] is None
    assert second["error"]["detail"].endswith("it must hold whole numbers from 0 to 255.")
