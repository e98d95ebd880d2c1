"""The lifecycle over HTTP, with real learning.

No class is lost silently, and everything that waits for a user says how to continue. Each rule has
one journey or more: a rollback and its cost, a held version and the four ways to settle it, and a
pinned production. Others are relearning, jobs that ran during a rollback, and the data scenario.
Each build runs a few of them. Those in the campaign repeat rules that `tests/core/lineage/` shows
without a service.
"""

import io
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from tests.before_after.contract import watch_contract
from tests.e2e import small
from tests.e2e.holder import Holder
from tests.e2e.small import WEEKS
from tests.rest import Json, Rest

pytestmark = pytest.mark.slow

GATE = {"min_new_task": 0.7}
WEAK = '{"optimizer": {"lr": 1e-7}}'
"""A recipe that learns nothing: its version fails the gate."""
_number = count(1)


class Watched:
    """One model and the requests of its user."""

    def __init__(self, client: Rest, **fields: Any) -> None:
        self.client, self.name = client, f"shop-{next(_number)}"
        self.path = f"/v1/models/{self.name}"
        given = {"training_data_days": 7, "recipe": {"epochs": 4}, **fields}
        small.create_small_model(client, self.name, {"name": "der++", "buffer": 40}, **given)

    def send(self, week: int, recipe: str | None = None, archive: bytes | None = None) -> Json:
        """Send a batch (week 1: the first two digits), and return the whole answer."""
        headers = {"Perennial-Recipe": recipe} if recipe else {}
        sent = {
            "content": archive or WEEKS[week - 1],
            "params": {"name": f"week-{week}"},
            "headers": headers,
        }
        return self.client.call("POST", f"{self.path}/tasks", **sent).json()

    def learn(self, *weeks: int, recipe: str | None = None, archive: bytes | None = None) -> Json:
        """Submit batches one after the other and wait for their jobs; return the last job."""
        return [self.end(self.send(week, recipe, archive)["job"]) for week in weeks][-1]

    def roll_back(self, **body: Any) -> Json:
        return self.post("aliases/production/rollback", body)

    def end(self, job: Json) -> Json:
        return self.client.wait(job["id"]).to_dict()

    def post(self, path: str, body: Json | None = None) -> Json:
        return self.client.call("POST", f"{self.path}/{path}", json=body or {}).json()

    def refused(self, path: str, body: Json | None = None) -> Json:
        """Send a request that is refused with 409, and return its problem."""
        answer = self.client.http.post(f"{self.path}/{path}", json=body or {})
        assert answer.status_code == 409, answer.text
        return answer.json()

    def see(self, path: str = "") -> Json:
        return self.client.get(f"{self.path}{path}")

    @property
    def aliases(self) -> dict[str, int]:
        return self.see()["aliases"]

    def tasks_of(self, version: int | str) -> list[int]:
        return self.see(f"/versions/{version}")["tasks"]

    def standings(self) -> list[str]:
        return [task["standing"] for task in self.client.items(f"{self.path}/tasks")]

    def log(self, job: Json) -> list[str]:
        return [line["message"] for line in self.client.items(f"/v1/jobs/{job['id']}/logs")]

    def waiting(self, kind: str) -> Json:
        """Return the only entry of `attention` of a kind."""
        (entry,) = [entry for entry in self.see()["attention"] if entry["kind"] == kind]
        return entry

    def act(self, entry: Json, verb: str, **fill: Any) -> Json:
        """Execute the action of an entry whose path ends with `verb`.

        Its body is sent unchanged, except that a `…` becomes a reason.
        """
        (action,) = [one for one in entry["actions"] if one["path"].endswith(verb)]
        body = {
            key: "a person said so" if value == "…" else value
            for key, value in action["body"].items()
        }
        return self.client.call(action["method"], action["path"], json=body | fill).json()

    def answers(self) -> set[str]:
        """Return the classes that production can predict."""
        path = f"{self.path}/versions/production/predict"
        answer = self.client.call(
            "POST", path, files={"file": small.take_first_image(WEEKS[0])}
        ).json()
        return set(answer["predictions"][0]["probabilities"])


@pytest.fixture(scope="module")
def unnamed(client: Rest) -> set[str]:
    """Return the set that collects what `/openapi.json` does not describe in the answers so far."""
    return watch_contract(client.http)


@pytest.fixture
def model(client: Rest, unnamed: set[str]) -> Callable[..., Watched]:
    """Return a function that makes a model to watch."""
    return lambda **fields: Watched(client, **fields)


def assert_words_in(text: str, *wanted: str) -> None:
    """Assert that a sentence has all required words."""
    print(text)
    missing = [word for word in wanted if word not in text]
    assert not missing, f"{missing} not in: {text}"


def check_day(moment: str, days: float) -> str:
    """Check that a time is this many days from now, give or take an hour.

    Return the day that sentences name for it.
    """
    distance = datetime.fromisoformat(moment) - datetime.now(UTC)
    assert abs(distance - timedelta(days=days)) < timedelta(hours=1), moment
    return moment[:10]


def list_warnings_of_check(model: Watched, week: int) -> list[str]:
    """Return the warnings of a batch that is checked but not learned."""
    sent = {"content": WEEKS[week - 1], "params": {"validate": "only"}}
    return model.client.call("POST", f"{model.path}/tasks", **sent).json()["warnings"]


# 1. A task that was rolled back is not lost


def test_a_batch_after_a_rollback_is_told_of_the_missing_task_held_and_settled_by_relearning(
    model,
) -> None:
    shop = model()
    shop.learn(1, 2)
    day = check_day(shop.see("/tasks/2")["training_data_until"], 7)
    back = shop.roll_back(reason="worse on twos")
    assert_words_in(
        back["warnings"][0], "Version 1", "task 2", "week-2", "2 and 3", "/tasks/2/relearn", day
    )
    (lost,) = back["lost_tasks"]
    assert lost["training_data_until"].startswith(day) and lost["can_relearn"]
    assert_words_in(shop.waiting("rolled_back")["detail"], "task 2", "2 and 3", day)

    (said,) = [text for text in list_warnings_of_check(shop, 3) if "task 2" in text]
    ways = ("/tasks/2/relearn", "/tasks/2/discard")
    assert_words_in(said, "will not contain", "week-2", "2 and 3", "rolled back", *ways)
    accepted = shop.send(3)
    assert said in accepted["task"]["warnings"] and said in accepted["job"]["warnings"]

    third = shop.end(accepted["job"])
    assert (third["state"], third["outcome"], third["version"]) == ("succeeded", "held", 3)
    version = shop.see("/versions/3")
    (check,) = [one for one in version["gate"]["checks"] if one["name"] == "lost_tasks"]
    assert (check["passed"], check["tasks"], check["classes"]) == (False, [2], ["2", "3"])
    assert_words_in(version["warnings"][0], "Version 3 does not contain task 2", "2 and 3")
    assert any("will not contain task 2" in line for line in shop.log(third))
    assert_words_in(shop.log(third)[-1], "Version 3 is held", "task 2", "cannot name 2 and 3")
    assert (shop.aliases["production"], shop.tasks_of("production")) == (1, [1])

    fourth = shop.send(4)["job"]
    assert fourth["waiting_for"]["kind"] == "held"
    assert_words_in(
        shop.waiting("held")["detail"],
        "Learn task 2 again first",
        "/tasks/2/relearn",
        "judged again",
    )
    again = shop.act(shop.waiting("rolled_back"), "relearn")
    assert again["waiting_for"] is None and shop.end(again)["outcome"] == "published"
    waits = shop.client.get(f"/v1/jobs/{fourth['id']}")["waiting_for"]
    assert waits["task"] == 3, "the line is still stopped"
    assert shop.end(shop.act(shop.waiting("held"), "retry"))["outcome"] == "published"
    assert shop.end(fourth)["outcome"] == "published"
    assert [shop.tasks_of(n) for n in (3, 4, 5, 6)] == [[1, 3], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
    assert shop.aliases["production"] == 1
    assert shop.post("aliases/production/follow")["version"] == 6
    assert shop.tasks_of("production") == [1, 2, 3, 4]
    settled = shop.see()
    assert (settled["attention"], shop.standings()) == ([], ["learned"] * 4)


# 2. A held version stops the line, and a person settles it


@pytest.fixture
def stopped(model) -> tuple[Watched, Json, Json]:
    """Return a model whose second version is held.

    Return it with its job and the job of a third batch, which waits.
    """
    shop = model(gate=GATE)
    assert shop.learn(1)["outcome"] == "published"
    held = shop.learn(2, recipe=WEAK)
    return shop, held, shop.send(3)["job"]


def test_a_held_version_stops_the_line_says_so_everywhere_and_goes_on_once_promoted(
    stopped,
) -> None:
    shop, held, third = stopped
    assert (held["state"], held["outcome"]) == ("succeeded", "held")
    log = shop.log(held)
    assert_words_in(
        log[-1],
        "Version 2 is held",
        "accuracy on the new task is",
        "at least 0.7",
        "week-2",
        "attention",
    )
    assert not any("published" in line for line in log)
    waits = third["waiting_for"]
    assert (waits["kind"], waits["version"], waits["task"]) == ("held", 2, 2)
    assert_words_in(waits["detail"], "version 2", "task 2", "held", "attention")
    assert shop.client.get(f"/v1/jobs/{third['id']}")["waiting_for"] == waits
    entry = shop.waiting("held")
    assert (entry["version"], entry["task"]) == (2, 2)
    assert_words_in(
        entry["detail"], "Version 2 is held", "at least 0.7", shop.name, "week-2", "2 and 3"
    )
    verbs = [one["path"].rsplit("/", 1)[-1] for one in entry["actions"]]
    assert verbs == ["retry", "discard", "continue", "production"]
    assert shop.aliases == {"production": 1, "latest": 1}

    without = shop.client.http.put(f"{shop.path}/aliases/production", json={"version": 2})
    assert without.status_code == 422
    assert_words_in(without.json()["detail"], "Version 2 is held", "at least 0.7", '"reason"')
    moved = shop.act(entry, "production")
    assert (moved["version"], moved["follows"]) == (2, True)
    assert shop.see("/versions/2")["gate"]["overruled"]["reason"] == "a person said so"
    assert_words_in(
        shop.see("/versions/2")["warnings"][-1],
        "A person put version 2 in production",
        "a person said so",
    )
    assert shop.client.get(f"/v1/jobs/{held['id']}")["outcome"] == "published"
    assert (shop.end(third)["outcome"], shop.tasks_of("production")) == ("published", [1, 2, 3])


@pytest.mark.campaign  # the first hour of the README does it (tests/docs/test_commands.py)
def test_a_held_task_is_retried_with_another_recipe_before_the_batch_that_waits(stopped) -> None:
    shop, held, third = stopped
    again = shop.act(shop.waiting("held"), "retry", recipe={"epochs": 10})
    assert (again["retry_of"], again["task"], again["waiting_for"]) == (held["id"], 2, None)
    assert again["recipe"]["epochs"] == 10
    assert shop.end(again)["outcome"] == "published"
    assert shop.end(third)["outcome"] == "published"
    assert shop.tasks_of("production") == [1, 2, 3]
    assert shop.see("/versions/2")["status"] == "held"


@pytest.mark.campaign  # tests/core/lineage/test_decisions.py shows it
@pytest.mark.parametrize(
    ("verb", "standing"),
    [pytest.param("discard", "discarded", marks=pytest.mark.campaign), ("continue", "skipped")],
)
def test_the_line_goes_on_without_a_held_task_that_a_person_gave_up(
    stopped, verb: str, standing: str
) -> None:
    shop, _, third = stopped
    task = shop.act(shop.waiting("held"), verb)
    assert (task["standing"], task["can_relearn"]) == (standing, True)
    assert check_day(task["training_data_until"], 7)
    assert shop.end(third)["outcome"] == "published"
    assert (shop.tasks_of("production"), shop.see()["attention"]) == ([1, 3], [])
    said = [text for text in list_warnings_of_check(shop, 4) if "task 2" in text]
    assert len(said) == (verb == "continue")
    if said:
        assert_words_in(said[0], "was skipped", "2 and 3", "/tasks/2/relearn")
    shop.end(shop.post("tasks/2/relearn", {"recipe": {}}))
    assert shop.tasks_of("production") == [1, 3, 2]


@pytest.mark.campaign  # tests/core/lineage/test_decisions.py shows it
def test_a_model_may_go_on_without_held_tasks_by_itself_and_says_so(model) -> None:
    shop = model(gate=GATE, on_held="continue")
    shop.learn(1)
    held = shop.learn(2, recipe=WEAK)
    day = check_day(shop.see("/tasks/2")["training_data_until"], 7)
    assert_words_in(
        shop.log(held)[-1], "Version 2 is held", "continues without task 2", "/tasks/2/relearn", day
    )
    assert shop.learn(3)["outcome"] == "published"
    assert shop.standings() == ["learned", "skipped", "learned"]


# 3. After a rollback production stays where it was put


@pytest.mark.campaign  # tests/core/lineage/test_decisions.py shows it
def test_after_a_rollback_later_batches_build_on_each_other_until_production_is_told_to_follow(
    model,
) -> None:
    shop = model()
    shop.learn(1, 2)
    shop.roll_back()
    shop.post("tasks/2/discard", {"reason": "wrong photos"})
    third, fourth = shop.learn(3), shop.learn(4)
    assert (third["outcome"], fourth["outcome"]) == ("published", "published")
    assert (shop.tasks_of(3), shop.tasks_of(4)) == ([1, 3], [1, 3, 4])
    assert_words_in(shop.log(fourth)[-1], "Version 4 is published", "not in production")
    seen = shop.see()
    assert (seen["aliases"], seen["line_head"]) == ({"production": 1, "latest": 4}, 4)
    assert seen["production_follows"] is False
    assert_words_in(
        seen["warnings"][-1], "version 1", "version 4", "not promoted", "aliases/production/follow"
    )
    assert_words_in(
        list_warnings_of_check(shop, 5)[-1],
        "Production stays on version 1",
        "aliases/production/follow",
    )

    moved = shop.post("aliases/production/follow")
    assert (moved["version"], moved["follows"], moved["warnings"]) == (4, True, [])
    shop.learn(5)
    assert (shop.aliases["production"], shop.tasks_of(5)) == (5, [1, 3, 4, 5])
    assert shop.see()["warnings"] == []


@pytest.mark.campaign  # tests/api/routes/test_aliases.py shows where it lands
def test_a_rollback_lands_on_a_version_that_can_answer_and_names_the_classes_that_are_lost(
    model,
) -> None:
    shop = model()
    shop.learn(1, 2, 3)
    assert shop.answers() == {"0", "1", "2", "3", "4", "5"}
    refused = shop.refused("aliases/production/rollback", {"version": 0})
    assert_words_in(refused["detail"], "Version 0", "cannot answer", "on version 1 or 2")
    assert refused["targets"] == [1, 2]
    back = shop.roll_back(version=1, reason="as in June")
    assert (back["version"], back["follows"], back["line_head"]) == (1, False, 1)
    lost = [(one["task"], one["lost_classes"]) for one in back["lost_tasks"]]
    assert lost == [(2, ["2", "3"]), (3, ["4", "5"])]
    assert shop.answers() == {"0", "1"}
    assert_words_in(
        " ".join(back["warnings"]),
        "task 2",
        "task 3",
        "/tasks/3/relearn",
        "aliases/production/follow",
    )
    refused = shop.refused("aliases/production/rollback")
    assert_words_in(refused["detail"], "no earlier version", "on version 2 or 3")
    entries = [entry for entry in shop.see()["attention"] if entry["kind"] == "rolled_back"]
    assert [entry["task"] for entry in entries] == [2, 3]
    shop.act(entries[1], "production")  # version 3 knew it
    assert (shop.aliases["production"], shop.see()["attention"]) == (3, [])


# 4. What the line lacks can be learned again while its training part is kept


@pytest.mark.campaign  # the first journey above reads the day
def test_the_day_until_which_a_task_can_be_learned_again_is_said_wherever_it_matters(model) -> None:
    shop = model(training_data_days=3)
    shop.learn(1, 2)
    day = check_day(shop.see("/tasks/2")["training_data_until"], 3)
    (lost,) = shop.roll_back()["lost_tasks"]
    assert lost["training_data_until"].startswith(day) and lost["can_relearn"]
    entry = shop.waiting("rolled_back")
    assert entry["training_data_until"].startswith(day)
    assert_words_in(entry["detail"], "task 2", "2 and 3", day)
    refused = shop.refused("tasks/1/relearn")
    assert_words_in(refused["detail"], "Task 1", "learned", "Version 1")
    again = shop.end(shop.act(entry, "relearn"))
    assert (again["outcome"], shop.tasks_of(3)) == ("published", [1, 2])
    assert (shop.aliases["production"], shop.standings()) == (1, ["learned", "learned"])


@pytest.mark.campaign  # tests/core/lineage/test_decisions.py shows it
def test_without_kept_images_relearning_is_refused_with_the_day_they_went(model) -> None:
    shop = model(training_data_days=0)
    shop.learn(1, 2)
    (lost,) = shop.roll_back()["lost_tasks"]
    assert (lost["can_relearn"], lost["training_data_until"]) == (False, None)
    refused = shop.refused("tasks/2/relearn")
    day = check_day(refused["training_data_deleted_at"], 0)
    assert_words_in(refused["detail"], "task 2", day, "send the batch again")
    entry = shop.waiting("rolled_back")
    assert_words_in(entry["detail"], day)
    assert [action["path"].rsplit("/", 1)[-1] for action in entry["actions"]] == [
        "production",
        "discard",
    ]
    assert_words_in(
        list_warnings_of_check(shop, 3)[0], "cannot be learned again", day, "send the batch again"
    )
    assert shop.learn(3)["outcome"] == "held"


@pytest.mark.campaign  # tests/core/lineage/test_gate.py shows it
def test_a_model_may_be_allowed_to_lose_classes_and_still_names_them(model) -> None:
    shop = model(allow_lost_classes=True)
    shop.learn(1, 2)
    shop.roll_back()
    third = shop.learn(3)
    assert third["outcome"] == "published"
    (check,) = [c for c in shop.see("/versions/3")["gate"]["checks"] if c["name"] == "lost_tasks"]
    assert (check["passed"], check["limit"], check["tasks"]) == (True, None, [2])
    (warning,) = [text for text in shop.see("/versions/3")["warnings"] if "task 2" in text]
    assert_words_in(warning, "Version 3 does not contain task 2", "2 and 3", "/tasks/2/relearn")
    assert "the gate holds" not in warning
    assert "the gate holds" not in shop.waiting("rolled_back")["detail"]


SPOILED = small.make_spoiled_batch(10)


def test_a_rejected_batch_stops_the_line_where_the_model_says_so_until_it_is_settled(model) -> None:
    """tests/core/lineage/test_decisions.py shows the same for a failed job."""
    shop = model(on_rejected="stop")
    shop.learn(1)
    assert shop.learn(2, archive=SPOILED)["state"] == "rejected"
    waits = shop.send(3)["job"]
    assert waits["waiting_for"]["kind"] == "rejected"
    assert_words_in(waits["waiting_for"]["detail"], "task 2", "rejected", "attention")
    entry = shop.waiting("rejected")
    assert_words_in(entry["detail"], "week-2", "cat and dog", "rejected", "Later batches wait")
    assert shop.act(entry, "discard")["standing"] == "discarded"
    assert (shop.end(waits)["outcome"], shop.tasks_of("production")) == ("published", [1, 3])


@pytest.mark.campaign  # tests/core/lineage/test_decisions.py shows it
def test_by_default_a_rejected_batch_does_not_stop_the_line_and_is_named(model) -> None:
    shop = model()
    shop.learn(1, archive=SPOILED)
    assert shop.learn(2)["outcome"] == "published"
    assert_words_in(
        shop.waiting("rejected")["detail"],
        "task 1",
        "cat and dog",
        "The lineage continues without it",
    )


# 5. Jobs beside a rollback


@pytest.mark.campaign  # tests/core/lineage/test_decisions.py shows it
def test_a_job_that_ran_during_a_rollback_of_its_parent_is_held(model, holder: Holder) -> None:
    shop = model()
    shop.learn(1, 2)
    holder.arm("job-train")
    third = shop.send(3)["job"]
    holder.wait()
    shop.roll_back()
    holder.release()
    end = shop.end(third)
    assert (end["outcome"], shop.tasks_of(3), shop.aliases["production"]) == ("held", [1, 2, 3], 1)
    failed = [
        check["name"] for check in shop.see("/versions/3")["gate"]["checks"] if not check["passed"]
    ]
    assert failed == ["parent_rolled_back"]
    detail = shop.waiting("held")["detail"]
    assert_words_in(
        detail, "Version 3 is held", "learned from version 2", "continues from version 1"
    )
    moved = shop.act(shop.waiting("held"), "production")
    assert (moved["version"], moved["follows"], moved["lost_tasks"]) == (3, True, [])
    assert (shop.see()["attention"], shop.standings()) == ([], ["learned"] * 3)


# 6. The data scenario: classes are covered, whichever task shows them


def pack_third_of_images(*digits: int, part: int) -> bytes:
    """Pack a third of the images of some digits."""
    files = {}
    for week in WEEKS[:2]:
        with zipfile.ZipFile(io.BytesIO(week)) as source:
            for index, name in enumerate(source.namelist()):
                if int(name.split("/")[1]) in digits and index % 3 == part:
                    files[name] = source.read(name)
    return small.pack_zip(files)


@pytest.mark.campaign  # tests/core/lineage/test_decisions.py shows it
def test_in_the_data_scenario_a_task_is_not_missed_whose_classes_other_tasks_show(model) -> None:
    shop = model(scenario="data", classes=["0", "1", "2"])
    shop.learn(1, archive=pack_third_of_images(0, 1, 2, part=0))
    shop.learn(2, archive=pack_third_of_images(0, 1, part=1))
    shop.roll_back()
    third = shop.learn(3, archive=pack_third_of_images(0, 1, 2, part=2))
    assert (third["outcome"], shop.tasks_of(3)) == ("published", [1, 3])
    held = "the gate holds a version that lacks a class which no other task shows"
    for text in (shop.see("/versions/3")["warnings"][0], shop.waiting("rolled_back")["detail"]):
        assert_words_in(text, "task 2", "rolled back", held)


def test_openapi_names_every_field_of_the_answers_in_these_journeys(unnamed: set[str]) -> None:
    assert sorted(unnamed) == []
