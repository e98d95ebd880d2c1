"""The page that submits: a plain form without a script, and what its script asks for; nothing typed
is lost.
"""

import html
import io
import json
import re
import zipfile
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from api.pages.parts import wording
from core.publishing.biased_head import REBALANCE
from tests.api.conftest import KeyOf, Make

PATH = "/ui/models/birds/submit"
Text = Callable[[str], str]


def create_upload(client: TestClient, content: bytes) -> str:
    """Return the id of a complete upload, made as the page's script makes one."""
    begun = client.post(
        "/v1/uploads", headers={"Upload-Length": str(len(content)), "Tus-Resumable": "1.0.0"}
    )
    piece = {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    headers = {**piece, "Tus-Resumable": "1.0.0"}
    assert (
        client.patch(begun.headers["location"], content=content, headers=headers).status_code == 204
    )
    return str(begun.json()["id"])


def read_recipe_from_page(page: str) -> object:
    found = re.search(r'data-recipe="([^"]*)"', page)
    assert found is not None
    return json.loads(html.unescape(found[1]))


def test_a_plain_form_submits_its_file_and_leads_to_the_job(
    logged_in: TestClient, model: str, archive: Make
) -> None:
    form = {
        "name": "week 31",
        "choice": "method:er",
        "epochs": "2",
        "method.replay_batch": "",
        "do": "submit",
    }
    files = {"file": ("a.zip", archive(cat=4, dog=4), "application/zip")}
    answer = logged_in.post(PATH, data=form, files=files)
    assert answer.status_code == 303, answer.text
    job = logged_in.get(answer.headers["location"].replace("/ui/", "/v1/")).json()
    assert job["recipe"]["method"]["name"] == "er" and job["recipe"]["epochs"] == 2
    task = logged_in.get("/v1/models/birds/tasks/1").json()
    assert task["name"] == "week 31" and task["classes"] == {"cat": 4, "dog": 4}


def test_a_check_says_in_words_what_a_submit_would_meet(
    logged_in: TestClient, model: str, archive: Make, text: Text
) -> None:
    files = {"file": ("a.zip", archive(cat=4, Cat=4), "application/octet-stream")}
    answer = logged_in.post(PATH, data={"do": "check", "epochs": "7"}, files=files)
    said = text(answer.text)
    assert answer.status_code == 200 and "2 classes, 8 images" in said and "New: Cat, cat" in said
    assert "Names that look alike" in said and "Nothing was sent to be learned" in said
    assert 'name="epochs" value="7"' in answer.text
    assert logged_in.get("/v1/models/birds/tasks").json()["items"] == []


def test_entries_of_a_label_table_that_are_left_out_are_listed(
    logged_in: TestClient, model: str, archive: Make, text: Text
) -> None:
    body = io.BytesIO(archive(cat=4, dog=4))
    with zipfile.ZipFile(body, "a") as file:
        rows = "".join(f"{name},{name[:3]}\n" for name in file.namelist())
        file.writestr("t.csv", f"file,label\n{rows}none.png,cat\n")
    files = {"file": ("a.zip", body.getvalue(), "application/zip")}
    said = html.unescape(text(logged_in.post(PATH, data={"do": "check"}, files=files).text))
    left = "line 10 of t.csv names “none.png”, which is not in the batch"
    assert "1 entry of the label table left out" in said and left in said
    logged_in.post(PATH, data={"do": "submit"}, files=files)
    (task,) = logged_in.get("/v1/models/birds/tasks").json()["items"]
    assert task["report"]["bad_entries_count"] == 1
    assert left in html.unescape(text(logged_in.get("/ui/models/birds/tasks/1").text))


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"epochs": "many"}, "write a whole number"),
        ({"epochs": "0"}, "at least 1"),
        ({"choice": "method:nothing"}, "there is no"),
        ({"choice": "method:vpt"}, "vpt"),
        ({"name": "a\u202eb"}, "name of the batch"),
    ],
)
def test_what_is_wrong_is_said_and_what_was_typed_stays(
    logged_in: TestClient, model: str, archive: Make, text: Text, form: dict[str, str], said: str
) -> None:
    given = {"batch_size": "17", **form}
    answer = logged_in.post(PATH, data=given, files={"file": ("a.zip", archive(cat=4, dog=4))})
    assert answer.status_code == 422 and said in html.unescape(text(answer.text)), text(answer.text)
    assert 'name="batch_size" value="17"' in answer.text
    assert logged_in.get("/v1/models/birds/tasks").json()["items"] == []


@pytest.mark.parametrize(
    "content", [b"", b"no archive", b"PK\x05\x06" + bytes(18)], ids=["none", "text", "empty"]
)
def test_a_file_that_is_no_batch_is_refused_with_all_that_was_typed(
    logged_in: TestClient, model: str, content: bytes
) -> None:
    files = {
        "file": ("a.zip", content),
        "epochs": (None, "7"),
    }  # the file comes first, as in the page
    answer = logged_in.post(PATH, files=files)
    assert answer.status_code in (415, 422) and 'role="alert"' in answer.text
    assert 'name="epochs" value="7"' in answer.text


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(
    logged_in: TestClient, model: str
) -> None:
    logged_in.app.state.settings.max_body_bytes = 1000  # type: ignore[attr-defined]
    answer = logged_in.post(PATH, files={"file": ("a.zip", bytes(2 << 20))})
    assert answer.status_code == 413 and "may have" in answer.text and 'id="file"' in answer.text


def test_the_plan_follows_the_form_with_its_warnings_and_commands(
    logged_in: TestClient, model: str, text: Text
) -> None:
    form = {"choice": "method:finetune", "optimizer.lr": "0.5", "file_names": "week 31.zip\n-x.zip"}
    page = logged_in.post(f"{PATH}/plan", data=form).text
    assert read_recipe_from_page(page) == {"method": "finetune", "optimizer": {"lr": 0.5}}
    said = html.unescape(text(page))
    assert "finetune is known to be weak in the class scenario" in said
    for command in (
        "perennial submit birds 'week 31.zip' --recipe",
        "perennial submit birds ./-x.zip",
    ):
        assert command in said
    assert "'http://127.0.0.1:8000/v1/models/birds/tasks?name=week%2031'" in said
    assert read_recipe_from_page(logged_in.post(f"{PATH}/plan", data={}).text) == {}


@pytest.mark.parametrize(
    ("advised", "sent"),
    [
        (REBALANCE, {"rebalance": {}}),  # five epochs are its default
        ({"rebalance": {"epochs": 7}}, {"rebalance": {"epochs": 7}}),
        (
            {"method": {"name": "analytic", "head": "lda"}},
            {"method": {"name": "analytic", "head": "lda"}},
        ),
        ({"preset": "fast", "epochs": 2}, {"preset": "fast", "epochs": 2}),
        ({"rebalance": None}, {"rebalance": None}),
    ],
)
def test_a_link_fills_in_the_recipe_that_a_warning_advises(
    logged_in: TestClient, model: str, advised: object, sent: object
) -> None:
    told = (
        f"Send the next batch with it: Perennial-Recipe: {json.dumps(advised)}. Or start a model."
    )
    assert (
        read_recipe_from_page(
            logged_in.get(f"{PATH}?{wording.find_advised_batch_form_query(told)}").text
        )
        == sent
    )


def test_a_sentence_that_advises_no_recipe_leads_nowhere() -> None:
    assert (
        wording.find_advised_batch_form_query("Send the next batch with more images of `cat`.")
        is None
    )


@pytest.mark.parametrize("sent", ["{}}", "[1]", "[" * 1900, "1", "null"])
def test_a_link_whose_recipe_is_none_is_said_and_fills_nothing_in(
    logged_in: TestClient, model: str, sent: str
) -> None:
    page = logged_in.get(PATH, params={"recipe": sent}).text
    assert "names a recipe that is none" in page
    assert read_recipe_from_page(page) == {}


@pytest.mark.parametrize(
    "sent",
    [
        {"epochs": "many"},
        {"method": 1},
        {"method": {"name": [2]}},
        {"preset": {}},
        {"rebalance": {"epochs": {}}},
        {"rebalance": "balanced"},
        {"optimizer": "adam"},
        {"optimizer": None},
        {"method": {"name": "icarl", "memory": 2000}},
        {"<b>": 1},
    ],
)
def test_a_link_whose_recipe_does_not_fit_is_said(
    logged_in: TestClient, model: str, sent: object
) -> None:
    page = logged_in.get(PATH, params={"recipe": json.dumps(sent)}).text
    assert re.search(r'class="wrong" id="wrong-[a-z.]+">[^<]', page)
    assert '<details class="more" open>' in page


def test_the_commands_say_nothing_that_a_shell_would_run(logged_in: TestClient, model: str) -> None:
    page = logged_in.post(f"{PATH}/plan", data={"file_names": "a'; rm -rf ~;'.zip"}).text
    assert """submit birds 'a'"'"'; rm -rf ~;'"'"'.zip'""" in html.unescape(page)


def test_an_upload_is_checked_and_kept(
    logged_in: TestClient, model: str, archive: Make, text: Text
) -> None:
    sent = create_upload(logged_in, archive(cat=4, dog=4))
    page = logged_in.post(f"{PATH}/check", data={"upload": sent}).text
    assert "2 classes, 8 images" in text(page)
    answer = logged_in.post("/v1/models/birds/tasks", json={"upload": sent, "recipe": {}})
    assert answer.status_code == 202
    assert logged_in.post(f"{PATH}/check", data={"upload": sent}).status_code == 404


def test_another_sites_form_submits_nothing(
    logged_in: TestClient, model: str, archive: Make
) -> None:
    files = {"file": ("a.zip", archive(cat=4, dog=4))}
    for changed in (
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "null"},
    ):
        for path, body in (
            (PATH, {"files": files}),
            (f"{PATH}/plan", {"data": {}}),
            ("/ui/models/new", {"data": {}}),
        ):
            answer = logged_in.post(path, headers=changed, **body)  # type: ignore[arg-type]
            assert answer.status_code == 403 and "data-recipe" not in answer.text, (changed, path)
    key = logged_in.browser_key  # type: ignore[attr-defined]
    foreign = {"Origin": "https://evil.example", "Authorization": f"Bearer {key}"}
    assert logged_in.post(PATH, files=files, headers=foreign).status_code == 403
    assert logged_in.get("/v1/models/birds/tasks").json()["items"] == []


def test_a_key_that_reads_is_told_that_it_may_not(
    logged_in: TestClient, key_of: KeyOf, model: str
) -> None:
    key = key_of("admin", "read")["Authorization"].removeprefix("Bearer ")
    assert logged_in.post("/ui/login", data={"key": key}).status_code == 303
    for path in (PATH, "/ui/models/new", "/ui/admin/keys", "/ui/admin/audit", "/ui/admin/usage"):
        answer = logged_in.get(path)
        assert answer.status_code == 403 and "needs a key of scope" in answer.text, path
    assert (
        "New model" not in logged_in.get("/ui").text
        and "/ui/admin/" not in logged_in.get("/ui").text
    )


def test_a_batch_that_is_sent_again_is_answered_by_the_job_that_learned_it(
    logged_in: TestClient, model: str, archive: Make, text: Text
) -> None:
    files = {"file": ("a.zip", archive(cat=4, dog=4), "application/zip")}
    first = logged_in.post(PATH, data={"do": "submit"}, files=files).headers["location"]
    again = logged_in.post(PATH, data={"do": "submit"}, files=files)
    assert again.headers["location"] == f"{first}?sent_again=true"
    page = logged_in.get(again.headers["location"])
    said = text(page.text)
    assert "Nothing was learned again. The model has this batch already: it is task 1" in said
    once_more = re.search(r'href="(/ui/models/[^"]*/submit\?again=true)"', page.text)
    assert once_more is not None
    assert 'name="again" value="true" checked' in logged_in.get(once_more[1]).text
    assert "Nothing was learned again" not in logged_in.get(first).text
