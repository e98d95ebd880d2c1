"""The page that submits, as people meet it: by keyboard, through a cut, after a reload, without
JavaScript.
"""

import io
import json
import secrets
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, Route, expect

from tests.client.small_batches import SMALL
from tests.ui.conftest import BATCHES, HOSTILE, OpenPage, Site, choose_files, submit_chosen
from tests.ui.files import drop_files, make_payload, unpack_zip

pytestmark = pytest.mark.slow


@pytest.fixture
def bare(site: Site) -> Iterator[str]:
    """The path of a model that is made for one test."""
    name = f"m-{secrets.token_hex(4)}"
    made = site.client.models.create(
        name, scenario="class", architecture="mlp", recipe={"epochs": 1}
    )
    yield f"/ui/models/{made.id}"
    site.client.models.delete(name)


def expect_uploads(page: Page, count: int = 1) -> None:
    expect(page.get_by_text("Uploaded and looked at.")).to_have_count(count)


def test_several_files_become_batches_in_their_order(
    site: Site, open_page: OpenPage, bare: str
) -> None:
    watched = open_page(f"{bare}/submit")
    page = watched.page
    choose_files(page, *[make_payload(f"{name}.zip", zipped) for name, zipped in BATCHES[:2]])
    expect_uploads(page, 2)
    rows = page.locator("#files > li")
    expect(rows.nth(0)).to_contain_text("New: 0, 1.")
    expect(rows.nth(1)).to_contain_text("New: 2, 3.")
    assert watched.faults() == []
    submit_chosen(page, f"**{bare}#jobs-title")
    tasks = list(site.client.tasks.list(bare.rpartition("/")[2]))
    assert [one.name for one in tasks] == [name for name, _ in BATCHES[:2]]


RAW = b"\0\0\0\x18ftypcrx \0\0\0\1crx isom" + bytes(90)


def pack_tar(files: dict[str, bytes], mode: Literal["w", "w:gz"]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def test_what_cannot_be_read_is_said_before_a_byte_is_uploaded(
    site: Site, open_page: OpenPage, bare: str
) -> None:
    """In a zip with packed files, in a tar and in a tar.gz; a few such images are a warning, and go
    on.
    """
    page, sent = open_page(f"{bare}/submit").page, []
    page.on(
        "request",
        lambda request: sent.append(request.url) if "/v1/uploads" in request.url else None,
    )
    bad = {f"{label}/{i}.jpg": RAW for label in ("cat", "dog") for i in range(3)}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in bad.items():
            archive.writestr(name, data)
    files = {
        "a.zip": out.getvalue(),
        "a.tar": pack_tar(bad, "w"),
        "a.tar.gz": pack_tar(bad, "w:gz"),
    }
    for number, (name, data) in enumerate(files.items()):
        choose_files(page, make_payload(name, data))
        row = page.locator("#files > li").nth(number)
        expect(row).to_contain_text("6 of 6 images cannot be read")
        expect(row).to_contain_text("a camera RAW file")
        expect(row).to_contain_text("Nothing was uploaded.")
    assert sent == []
    with zipfile.ZipFile(io.BytesIO(BATCHES[0][1])) as archive:
        some = {name: archive.read(name) for name in archive.namelist()[:40]}
    some |= {f"{name}.jpg": RAW for name in list(some)[:1]}
    choose_files(page, make_payload("b.tar", pack_tar(some, "w")))
    row = page.locator("#files > li").nth(3)
    expect(row).to_contain_text("1 of 41 images cannot be read and is left out")
    expect(row).to_contain_text("Uploaded and looked at.")
    assert sent


def test_the_recipe_is_chosen_and_sent_and_its_command_is_shown(
    site: Site, open_page: OpenPage, bare: str
) -> None:
    page = open_page(f"{bare}/submit").page
    choose_files(page, make_payload("week.zip", BATCHES[0][1]))
    page.get_by_label("Method or preset").select_option("method:finetune")
    expect(page.locator("#plan")).to_contain_text(
        "finetune is known to be weak in the class scenario"
    )
    page.get_by_text("Change its settings").click()
    page.locator("[name=epochs]").fill("none at all")
    expect(page.locator("#wrong-epochs")).to_contain_text("write a whole number")
    expect(page.locator("[name=epochs]")).to_have_attribute("aria-invalid", "")
    page.locator("[name=epochs]").fill("2")
    page.get_by_text("The same from a terminal").click()
    command = 'week.zip --recipe \'{"method": "finetune", "epochs": 2}\''
    expect(page.locator("#plan pre").first).to_contain_text(command)
    expect_uploads(page)
    submit_chosen(page)
    recipe = site.client.jobs.retrieve(page.url.rpartition("/")[2]).recipe
    assert recipe.method is not None and recipe.method.name == "finetune" and recipe.epochs == 2


def tab_to(page: Page, control: str) -> None:
    """Press Tab until a control has the focus."""
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == control:
            break
    expect(page.locator(f"#{control}")).to_be_focused()


def test_by_keyboard_alone_a_batch_is_named_and_submitted(
    site: Site, open_page: OpenPage, bare: str, tmp_path: Path
) -> None:
    page = open_page(f"{bare}/submit").page
    page.on(
        "filechooser", lambda _: None
    )  # from now on: else a chooser may open before it is listened to
    file = tmp_path / "by hand.zip"
    file.write_bytes(BATCHES[0][1])
    expect(page.get_by_text("Or drop a folder here")).to_be_visible()  # its script has begun
    tab_to(page, "file")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(file)
    expect_uploads(page)
    page.keyboard.press("Tab")  # to the choice of a folder,
    page.keyboard.press("Tab")  # then to the name
    page.keyboard.press("Control+A")
    page.keyboard.type("typed")
    tab_to(page, "go")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/jobs/*")
    [task] = site.client.tasks.list(bare.rpartition("/")[2])
    assert task.name == "typed"


def test_an_upload_that_is_cut_goes_on_and_after_a_reload_too(
    site: Site, open_page: OpenPage, bare: str, tmp_path: Path
) -> None:
    page = open_page(f"{bare}/submit", refusals=True).page
    batch = tmp_path / "cut.zip"
    batch.write_bytes(BATCHES[0][1])
    cuts: list[str] = []

    def abort_first_pieces(route: Route) -> None:
        if route.request.method == "PATCH":
            cuts.append(route.request.headers["upload-offset"])
            if len(cuts) < 3:
                return route.abort("connectionreset")
        return route.continue_()

    page.route("**/v1/uploads/*", abort_first_pieces)
    choose_files(page, batch)
    expect_uploads(page)
    assert len(cuts) == 3
    [sent] = [one for one in site.client.uploads.list() if one.filename == "cut.zip"]
    page.reload()
    choose_files(page, batch)
    expect_uploads(page)
    assert len(cuts) == 3  # nothing was sent again
    submit_chosen(page)
    for left in site.client.uploads.list():
        site.client.uploads.delete(left.id)
    assert sent.offset == sent.length


def test_a_file_that_is_refused_is_said_beside_it_and_what_was_typed_stays(
    open_page: OpenPage, bare: str
) -> None:
    page = open_page(f"{bare}/submit", refusals=True).page
    page.get_by_text("Change its settings").click()
    page.locator("[name=epochs]").fill("3")
    choose_files(page, make_payload(f"{HOSTILE}.zip", b"no archive at all"))
    row = page.locator("#files > li")
    expect(row).to_contain_text("The first bytes of the body are of no known archive")
    expect(row).to_contain_text(HOSTILE)
    expect(page.locator("img[src=x]")).to_have_count(0)
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
    expect(page.locator("[name=epochs]")).to_have_value("3")
    page.get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)


def move_into_one_folder(content: bytes) -> bytes:
    """Put the images of an archive into a folder that names no class."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for number, name in enumerate(old.namelist()):
            new.writestr(f"images/{number}.png", old.read(name))
    return out.getvalue()


def test_a_button_settles_how_a_file_is_read(site: Site, open_page: OpenPage, bare: str) -> None:
    page = open_page(f"{bare}/submit", refusals=True).page
    choose_files(page, make_payload("photos.zip", move_into_one_folder(BATCHES[0][1])))
    row = page.locator("#files > li")
    expect(row).to_contain_text("The batch has no labels that are sure")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
    row.get_by_role("button", name="as one class “images”").click()
    expect_uploads(page)
    expect(row).to_contain_text("1 class, 44 images")
    submit_chosen(page)
    [task] = site.client.tasks.list(bare.rpartition("/")[2])
    assert dict(task.classes) == {"images": 44}


@pytest.mark.campaign  # the test before; a plain form is below
def test_without_javascript_a_choice_settles_it(
    site: Site, open_page: OpenPage, bare: str, tmp_path: Path
) -> None:
    file = tmp_path / "photos.zip"
    file.write_bytes(move_into_one_folder(BATCHES[0][1]))
    page = open_page(f"{bare}/submit", java_script_enabled=False, refusals=True).page
    page.locator("#file").set_input_files(file)
    page.get_by_role("button", name="Only check it").click()
    page.get_by_label("as one class “images”").check()
    page.locator("#file").set_input_files(file)
    page.get_by_role("button", name="Only check it").click()
    expect(page.locator("main")).to_contain_text("1 class, 44 images")


@pytest.mark.campaign  # test_first_model.py drops one on the first page
def test_a_dropped_folder_is_packed_and_uploaded_as_one_batch(
    site: Site, open_page: OpenPage, bare: str, tmp_path: Path
) -> None:
    folder = tmp_path / "week 31"
    unpack_zip(BATCHES[0][1], folder)
    watched = open_page(f"{bare}/submit")
    page = watched.page
    expect(page.get_by_text("Or drop a folder here")).to_be_visible()  # its script has begun
    drop_files(page, "#drop", folder)
    row = page.locator("#files > li")
    expect_uploads(page)
    expect(row).to_contain_text("week 31.tar")
    expect(row.get_by_label("Name")).to_have_value("week 31")
    expect(row).to_contain_text("2 classes, 44 images, 20 of them held out")
    assert watched.faults() == []


@pytest.mark.campaign  # a dropped folder is uploaded in the same way
def test_a_dropped_zip_is_uploaded(open_page: OpenPage, bare: str, tmp_path: Path) -> None:
    file = tmp_path / "week-31.zip"
    file.write_bytes(BATCHES[0][1])
    page = open_page(f"{bare}/submit").page
    expect(page.get_by_text("Or drop a folder here")).to_be_visible()  # its script has begun
    drop_files(page, "#drop", file)
    expect_uploads(page)
    page.get_by_role("button", name="Remove").click()


def test_without_javascript_a_plain_form_checks_and_submits(
    site: Site, open_page: OpenPage, bare: str, tmp_path: Path
) -> None:
    file = tmp_path / "plain.zip"
    file.write_bytes(BATCHES[0][1])
    page = open_page(f"{bare}/submit", java_script_enabled=False).page
    page.get_by_label("Name of the batch").fill(f"plain {HOSTILE}")
    page.locator("#file").set_input_files(file)
    page.get_by_role("button", name="Only check it").click()
    expect(page.locator("main")).to_contain_text("2 classes, 44 images")
    expect(page.get_by_label("Name of the batch")).to_have_value(f"plain {HOSTILE}")
    page.locator("#file").set_input_files(file)
    submit_chosen(page)
    [task] = site.client.tasks.list(bare.rpartition("/")[2])
    assert task.name == f"plain {HOSTILE}"
    page.goto(f"{bare}/tasks/1")
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE)
    page.goto("/ui/admin/audit")
    expect(page.locator("img[src=x]")).to_have_count(0)


def test_without_javascript_a_photo_is_predicted(site: Site, open_page: OpenPage) -> None:
    with zipfile.ZipFile(io.BytesIO(BATCHES[0][1])) as archive:
        photo = archive.read(archive.namelist()[0])
    page = open_page(site.home, java_script_enabled=False).page
    page.get_by_role("link", name="Predict photos").click()
    named = {f"{HOSTILE}.png": photo, "broken.png": b"\x89PNG"}
    photos = [make_payload(name, content, "image/png") for name, content in named.items()]
    page.locator("input[type=file]").set_input_files(photos)
    page.get_by_role("button", name="Predict").click()
    expect(page.locator(".answers li").first).to_contain_text(f"{HOSTILE}.png: 0")
    expect(page.locator(".answers meter").first).to_be_visible()
    expect(page.locator(".answers li").nth(1)).to_contain_text("cannot be used")
    expect(page.locator("img[src=x]")).to_have_count(0)


@pytest.mark.campaign  # the next test, and tests/api/pages/test_submit.py
def test_a_batch_that_is_sent_again_says_that_nothing_was_learned(
    site: Site, open_page: OpenPage, bare: str
) -> None:
    file = make_payload("week.zip", BATCHES[0][1])
    page = open_page(f"{bare}/submit").page
    choose_files(page, file)
    expect_uploads(page)
    submit_chosen(page)
    first = page.url
    page.goto(f"{bare}/submit")
    choose_files(page, file)
    expect_uploads(page)
    submit_chosen(page, f"{first}?sent_again=true")
    expect(page.get_by_text("Nothing was learned again.")).to_be_visible()


def test_of_several_batches_those_that_the_model_has_are_named_with_their_job(
    site: Site, open_page: OpenPage, bare: str
) -> None:
    job = site.client.submit(bare.rpartition("/")[2], BATCHES[0][1], name="known")
    page = open_page(f"{bare}/submit").page
    choose_files(page, *[make_payload(f"{name}.zip", zipped) for name, zipped in BATCHES[:2]])
    expect_uploads(page, 2)
    page.get_by_role("button", name="Send", exact=True).click()
    rows = page.locator("#files > li")
    expect(rows.nth(0)).to_contain_text("Nothing was learned again: the model has it.")
    expect(rows.nth(1)).to_contain_text("Sent.")
    assert str(rows.nth(0).get_by_role("link").get_attribute("href")).endswith(job.id)


def test_recipes_to_compare_are_sent_with_the_batch(site: Site, open_page: OpenPage) -> None:
    heads = [{"method": {"name": "analytic", "head": head}} for head in ("lda", "ridge")]
    made = site.client.models.create("compared", **SMALL)
    watched = open_page(f"/ui/models/{made.id}/submit")
    page = watched.page
    choose_files(page, make_payload("week.zip", BATCHES[0][1]))
    expect_uploads(page)
    page.get_by_text("Compare several recipes").click()
    page.locator("select[name=trials]").select_option("list")
    page.locator("select[name=choose]").select_option("manual")
    expect(page.locator("#wrong-trials_list")).to_contain_text("is empty")
    page.locator("textarea[name=trials_list]").fill(json.dumps(heads))
    expect(page.locator("#wrong-trials_list")).to_be_empty()
    assert watched.faults() == []
    submit_chosen(page)
    trials = site.client.jobs.trials(page.url.rpartition("/")[2])
    assert [one.recipe.to_dict() for one in trials.items] == heads and trials.choose == "manual"
    site.client.models.delete("compared")
