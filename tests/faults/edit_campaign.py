"""A crash campaign of edits: the running service is killed while models are edited.

    python tests/faults/edit_campaign.py [--kills 100] [--minutes M] [--size small|large]
        [--lanes 4] [--seed 0]

Each lane has one model that learned two batches before any disturbance. It then goes through
`STEPS` again and again: edits, undos, and purges of removed images. Every other model is edited by
kept features, the others by learning tasks again. Processes are killed as in `campaign.py`, at the
points that an edit reaches.

After each step, tasks, classes, former names, figures and the lineage of a model equal those of an
undisturbed model. In the end the parts of every version are bit-identical, too. An edit whose job
was killed three times without progress fails by design: the model is then unchanged, and the lane
sends the edit again.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any

import psutil
from archives import build_archive
from campaign import Campaign, main
from running_site import (
    API,
    MODEL,
    Broken,
    Caller,
    list_versions_with_parts,
    require_nothing_left,
    submit_batches,
    wait_until_succeeded,
)

from core.database.session import Database
from core.failpoints import POINTS
from core.storage import open_object_store

Json = dict[str, Any]

PER_CLASS = 60
"""Images of each class; each turn removes one image of each task."""
BATCHES = [build_archive(2 * number, per_class=PER_CLASS) for number in range(2)]
RECIPES: dict[str, Json] = {
    "recompute": {"method": {"name": "analytic", "projection": 16}},
    "relearn": {**MODEL["recipe"], "epochs": 20},
}
"""Way of editing → recipe of the models."""
STEPS: dict[str, list[Json] | str] = {
    "relabel": [
        {"relabel": {"task": 1, "image": 0, "label": "c1"}},
        {"relabel": {"task": 2, "part": "held_out", "image": 0, "label": "c3"}},
    ],
    "merge": [{"merge": {"from": ["c0"], "into": "c2"}}],
    "undo the merge": "undo",
    "rename": [{"rename": {"from": "c1", "to": "one"}}],
    "undo the rename": "undo",
    "undo the relabel": "undo",
    "remove": [{"remove": {"task": 2, "image": 0}}],
    "purge what was removed": "purge",
    "relabel to a new class": [{"relabel": {"task": 1, "image": 1, "label": "gone"}}],
    "drop": [{"drop": {"class": "gone"}}],
    "purge what was dropped": "purge",
}
"""Edits, and steps that undo or purge the last edit that is not undone."""
MISSED = (
    *("submit-", "upload-", "ingest-", "archive-", "prepare-"),
    *("fetch-", "export-", "delivery-", "trial-"),
)
"""Points that an edit does not reach."""


class EditCampaign(Campaign):
    """A campaign that disturbs a site until there were `kills` deaths, while lanes edit."""

    # An edit comes by some points once, or only on one of the two ways. Waiting for one point
    # after the other would take most of the time. Points near the end of an edit stay armed until
    # an edit gets there; as soon as only such points are armed, nothing kills it before.
    armed_at_once = 3
    armed_s = 60.0
    # The lanes end their turns, and the undisturbed models go through as many turns as they did.
    deadline_s = 900.0

    def _begin(self) -> None:
        self._seen: dict[str, list[Json]] = {}
        self._sent: dict[str, int] = {}
        for way in RECIPES:
            self._teach(f"undisturbed-{way}", way)
        for lane in range(self._lanes):
            self._teach(f"lane-{lane}", choose_way(lane))

    def _teach(self, name: str, way: str) -> None:
        caller = self._caller()
        model = {**MODEL, "recipe": RECIPES[way], "training_data_days": 7}
        del model["keep_training_data"]
        for job in submit_batches(caller, name, BATCHES, model):
            wait_until_succeeded(caller, job)
        self._seen[name] = [describe_model(caller, name)]
        self._sent[name] = 0
        self.report.models.append(name)
        self.report.jobs += len(BATCHES)

    def _work(self, lane: int, turn: int) -> None:
        self._edit(f"lane-{lane}", choose_way(lane))

    def _end(self) -> None:
        for way in RECIPES:
            lanes = [lane for lane in range(self._lanes) if choose_way(lane) == way]
            wanted = f"undisturbed-{way}"
            while lanes and len(self._seen[wanted]) < max(
                len(self._seen[f"lane-{lane}"]) for lane in lanes
            ):
                self._edit(wanted, way)
            for lane in lanes:
                for step, found in enumerate(self._seen[f"lane-{lane}"]):
                    if found != self._seen[wanted][step]:
                        name = ["learn", *STEPS][step and 1 + (step - 1) % len(STEPS)]
                        raise Broken(
                            f"step {step} ({name}) of lane-{lane} ended as {found} and not as "
                            f"{self._seen[wanted][step]}"
                        )

    def _check(self) -> int:
        settings, compared = self._site.settings(), 0
        db, store = Database(settings.resolved_database_url), open_object_store(settings)
        try:
            require_nothing_left(self._site, db, store)
            for lane in range(self._lanes):
                wanted = list_versions_with_parts(db, f"undisturbed-{choose_way(lane)}")
                found = list_versions_with_parts(db, f"lane-{lane}")
                if found != wanted[: len(found)]:
                    raise Broken(f"lane-{lane} has the versions {found} and not {wanted}")
                compared += len(found)
            return compared
        finally:
            db.close()

    def _list_victims(self) -> list[psutil.Process]:
        # Without what is idle: each death hits an edit that is running.
        found: list[psutil.Process] = []
        while not found and not self._enough():
            time.sleep(0.02)
            for worker in self._list_busy_workers():
                with suppress(psutil.NoSuchProcess):
                    found += [worker, *worker.children(recursive=True)]
        return [*found, self._site.processes[API]] if found else []

    def _list_points(self) -> list[str]:
        return [point for point in POINTS if not point.startswith(MISSED)]

    def _caller(self) -> Caller:
        return Caller(self._site.url, self._key, lambda: time.monotonic() > self._deadline)

    def _edit(self, name: str, way: str) -> None:
        """Go through all steps once."""
        caller, standing = self._caller(), list[int]()
        path = f"/v1/models/{name}/edits"
        for step, operations in STEPS.items():
            if operations == "undo":
                undone = caller.call("POST", f"{path}/{standing.pop()}/undo", json={})
                if undone["undone_at"] is None:
                    raise Broken(f"{step}: {undone}")
            elif operations == "purge":
                purged = caller.call("POST", f"{path}/{standing.pop()}/purge")
                if purged["still_in_versions"]:
                    raise Broken(f"{step}: {purged}")
            else:
                standing.append(self._send(caller, name, way, operations))
            seen = describe_model(caller, name)
            with self._lock:
                self._seen[name].append(seen)
                self.report.edits += 1

    def _send(self, caller: Caller, name: str, way: str, operations: Any) -> int:
        """Send an edit until it succeeds, and return its number."""
        path = f"/v1/models/{name}/edits"
        while True:
            self._sent[name] += 1
            key = f"{name}-edit-{self._sent[name]}"
            sent = caller.call("POST", path, key, json={"operations": operations})
            if sent["number"] != self._sent[name]:
                raise Broken(f"edit {self._sent[name]} of {name} has the number {sent['number']}")
            while not (job := caller.call("GET", f"/v1/jobs/{sent['job']}"))["is_terminal"]:
                time.sleep(0.2)
            if job["state"] == "succeeded":
                break
            if job["state"] != "failed" or job["error"]["kind"] != "lost":
                raise Broken(f"an edit of {name} ended {job['state']}: {job['error']}")
            self.report.retried.append(name)
            if (found := describe_model(caller, name)) != self._seen[name][-1]:
                raise Broken(f"{name} is half edited: {found} and not {self._seen[name][-1]}")
        made = caller.call("GET", f"{path}/{sent['number']}")
        if made["way"] not in (way, "rename"):
            raise Broken(f"an edit of {name} went the way {made['way']}")
        return int(sent["number"])


def choose_way(lane: int) -> str:
    """Return the way in which a lane's model is edited."""
    return list(RECIPES)[lane % len(RECIPES)]


def describe_model(caller: Caller, name: str) -> Json:
    """Return a model and its tasks as the service describes them, without times and digests."""
    path = f"/v1/models/{name}"
    model, figures = caller.call("GET", path), caller.call("GET", f"{path}/metrics")
    former = caller.call("GET", f"{path}/class-aliases")["items"]
    named = ("number", "standing", "classes", "n_train", "n_held_out", "version")
    figured = (*named, "accuracy_now", "accuracy_when_learned")
    tasks = caller.call("GET", f"{path}/tasks")["items"]
    newest = caller.call("GET", f"{path}/versions/{model['line_head']}")["manifest"]
    return {
        "line": {key: model[key] for key in ("line_head", "aliases", "attention")},
        "tasks": [{key: task[key] for key in figured} for task in tasks],
        "former names": [(alias["name"], alias["to"]) for alias in former],
        "figures": {key: figures[key] for key in ("accuracy_matrix", "marks")},
        "reports": [read_report(caller, f"{path}/tasks/{task['number']}") for task in tasks],
        "classes": newest["classes"],
        "parts": {part["name"]: part["sha256"] for part in newest["parts"]},
        "temperature": newest["temperature"],
    }


def read_report(caller: Caller, path: str) -> Json:
    """Return a task's report without the durations."""
    report = caller.call("GET", path)["report"]
    report.get("data", {}).pop("cost_s", None)
    return dict(report)


if __name__ == "__main__":
    sys.exit(main(EditCampaign, __doc__))
