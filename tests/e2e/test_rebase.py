"""A model moves to a base that reads other images, over HTTP and with real batches, though a job
dies on the way.
"""

import io
import zipfile
from collections.abc import Iterator

import pytest

from core.packaged import imagenet_base, packaged_base
from perennial import Conflict
from tests.e2e import small
from tests.e2e.holder import Holder
from tests.rest import Json, Rest
from tools import digits

pytestmark = pytest.mark.slow

IMAGES = 7
"""Of each class in a batch; one of them is held out."""
SMALL = {"architecture": {"name": "mlp", "hidden": [16]}, "image": {"size": 8, "channels": 1}}
LARGER = {"architecture": {"name": "mlp", "hidden": [16]}, "image": {"size": 12, "channels": 1}}
NAMES = ("week-31", "week-32")


def take_few(archive: bytes) -> bytes:
    """Keep some images of each class, without a test part.
    The service itself decides what is held out.
    """
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        for label in sorted({name.split("/")[0] for name in source.namelist()}):
            own = [name for name in source.namelist() if name.startswith(f"{label}/")]
            found |= {name: source.read(name) for name in own[:IMAGES]}
    return small.pack_zip(found)


@pytest.fixture(params=["networks", pytest.param("photos", marks=pytest.mark.campaign)])
def bases(client: Rest, request: pytest.FixtureRequest) -> Iterator[tuple[Json, Json | str, int]]:
    """Fields of a new model, the base that it moves to, and the size of the images that this base
    reads.

    In each build two small networks, in the campaign the small base and the one for photos, which
    takes a minute.
    """
    if request.param == "photos":
        yield {"base": packaged_base.PACKAGED}, imagenet_base.NAME, 224
    else:
        client.models.create("larger", "class", **LARGER)
        yield SMALL, {"model": "larger", "version": 0}, 12
    for model in client.items("/v1/models"):
        client.models.delete(model["id"])


def test_a_model_moves_to_another_base_after_both_were_compared_though_a_job_dies(
    client: Rest, holder: Holder, bases: tuple[Json, Json | str, int]
) -> None:
    """`tests/faults/test_worker_deaths.py` kills workers."""
    fields, base, size = bases
    batches = dict(
        zip(
            NAMES, (take_few(archive) for _, archive in digits.build_digit_archives()), strict=False
        )
    )
    old = client.models.create("digits", **fields)
    assert old.image.size < size
    for name, batch in batches.items():
        small.learn_batches(client, "digits", batch, name=name)

    plan = client.models.rebase("digits", base)
    assert plan.new.name == "digits-rebased" and plan.new.image.size == size
    assert [(one.name, one.arrival) for one in plan.tasks] == [
        (name, "send_again") for name in NAMES
    ]

    # In the middle of learning the first batch again the job dies; production goes on by its name.
    holder.arm("job-evaluate")
    first = client.submit("digits-rebased", batches["week-31"], name="week-31")
    process = holder.wait()
    picture = small.take_first_image(batches["week-31"])
    assert predict_picture(client, "digits", picture) == predict_picture(client, old.id, picture)
    process.kill()

    with pytest.raises(Conflict):
        client.models.finish_rebase("digits-rebased")
    second = client.submit("digits-rebased", batches["week-32"], name="week-32")
    ends = [client.wait(job) for job in (first, second)]
    assert [(end.state, end.attempt) for end in ends] == [("succeeded", 2), ("succeeded", 1)], ends

    # Both are compared before anything moves, on the images that each of them held out by itself.
    compared = client.models.rebase_status("digits")
    assert compared.ready and compared.state == "open" and compared.old.id == old.id
    assert [
        (one.arrival, one.new_task, one.flips.n if one.flips else 0) for one in compared.tasks
    ] == [
        ("sent", 1, 2),
        ("sent", 2, 2),
    ]
    for side, version in ((compared.old, 2), (compared.new, 2)):
        right = sum(
            one["correct"]
            for one in client.get(f"/v1/models/{side.id}/versions/{version}/results")["items"]
        )
        share = compared.totals.old if side is compared.old else compared.totals.new
        assert share is not None and (share.correct, share.total) == (right, 4)
    assert client.models.retrieve("digits").id == old.id

    moved = client.models.finish_rebase("digits-rebased", reason="photos")
    assert moved.state == "finished" and moved.totals == compared.totals
    assert client.models.retrieve("digits").id == plan.new.id
    assert predict_picture(client, "digits", picture) == predict_picture(
        client, plan.new.id, picture
    )
    assert predict_picture(client, "digits", picture) != predict_picture(
        client, "digits-before-rebase", picture
    )
    small.learn_batches(
        client, "digits", take_few(digits.build_digit_archives()[2][1]), name="week-33"
    )

    back = client.models.finish_rebase("digits-before-rebase", reason="it was only a test")
    assert back.old.name == "digits" and client.models.retrieve("digits").id == old.id


def predict_picture(client: Rest, model: str, picture: bytes) -> object:
    """Return what production of a model predicts for a picture."""
    files = [("image", ("one.png", picture, "image/png"))]
    return client.call(
        "POST", f"/v1/models/{model}/versions/production/predict", files=files
    ).json()["predictions"]
