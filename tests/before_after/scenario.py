"""The fixed scenario: what is asked of an empty service, model by model.

Each model is one thing that people do. All are learned on 8×8 digits with small networks, one after
the other, so that two runs make the same versions. At the end one job is paused, with a snapshot in
the store.
"""

import json
from collections.abc import Callable, Collection
from typing import Any

from safetensors.numpy import load, save

from tests.before_after import batches
from tests.before_after.player import Player

Json = dict[str, Any]
PAIRS = batches.build_pair_batches()
MLP: Json = {"architecture": {"name": "mlp", "hidden": [16]}, "image": {"size": 8, "channels": 1}}
DNE: Json = {
    "architecture": {"name": "dne", "layers": 2, "head_dim": 4, "heads": 2, "patch": 4},
    "image": {"size": 8, "channels": 1},
}
QUICK: Json = {"epochs": 2, "batch_size": 8}
NEVER = {"min_acc": 1.0}
"""A gate that no version passes which was taught for so short a time."""
PAUSED = "paused"
"""The model whose second job is paused at the end."""
MEMORY: dict[str, Json] = {
    "derpp": {"name": "der++", "buffer": 30},
    "er": {"name": "er", "buffer": 30},
    "icarl": {"name": "icarl", "exemplars": 24},
    "gem": {"name": "gem", "memory": 10},
}
OTHERS: dict[str, Json] = {
    "ewc-online": {"name": "ewc-online"},
    "dlcft": {"name": "dlcft", "buffer": 20, "probes": 2},
    "lwf": {"name": "lwf"},
}


def play_scenario(player: Player) -> None:
    """Play the whole scenario."""
    for part in (
        read_empty_service,
        teach_methods,
        teach_recipes,
        roll_back_and_follow,
        hold_versions,
        fail_jobs,
        delete_data,
        start_from_bases,
        send_refused_requests,
    ):
        part(player)
    read_as_other_owner(player)
    pause_in_mid_task(player)


def play_short_scenario(player: Player) -> None:
    """Play the part of the scenario of which a data directory is kept with the tests."""
    for name in ("derpp", "icarl"):
        create_and_teach(player, name, MEMORY[name], tasks=2)
    create_and_teach(player, "ewc-online", OTHERS["ewc-online"], tasks=2)
    for part in (roll_back_and_follow, hold_versions, pause_in_mid_task):
        part(player)


def read_empty_service(player: Player) -> None:
    """Read what exists before any model."""
    player.chapter("empty")
    for path in (
        "/healthz",
        "/readyz",
        "/v1/models",
        "/v1/jobs",
        "/v1/methods",
        "/v1/architectures",
    ):
        player.ask("GET", path)
    player.ask("GET", "/v1/methods/der++")
    player.ask("GET", "/v1/keys")


def create_and_teach(
    player: Player, name: str, method: Json | str, tasks: int = 3, **fields: Any
) -> None:
    """Create a model, by default of the class scenario, and teach it some tasks."""
    player.chapter(name)
    recipe = {**QUICK, **fields.pop("recipe", {}), "method": method}
    player.create(name, fields.pop("scenario", "class"), recipe=recipe, **{**MLP, **fields})
    for number in range(tasks):
        player.learn(name, PAIRS[number])


def teach_methods(player: Player) -> None:
    """Teach methods with every kind of state, in all scenarios."""
    for name, method in {**MEMORY, **OTHERS}.items():
        create_and_teach(player, name, method)
    create_and_teach(player, "dne", "dne", tasks=2, **DNE)
    create_and_teach(player, "heads-icarl", MEMORY["icarl"], scenario="task")
    create_and_teach(player, "heads", "finetune", scenario="task")
    player.ask(
        "POST",
        "/v1/models/heads/versions/3/predict",
        "no task is named",
        files=_build_picture_files(0),
    )
    player.chapter("seasons")
    player.create("seasons", "data", recipe={**QUICK, "method": MEMORY["er"]}, **MLP)
    for turn in range(3):
        player.learn(
            "seasons", batches.build_batch(f"season-{turn}", (0, 1, 2), turn * batches.IMAGES)
        )


def teach_recipes(player: Player) -> None:
    """Teach with presets, depth 1, a change of recipe, and a recipe that is sent with a batch."""
    olor = {"preset": "olor-sgd", "augment": "none"}
    create_and_teach(player, "olor", "finetune", tasks=2, recipe=olor)
    create_and_teach(
        player, "fast", "finetune", tasks=2, recipe={"preset": "fast", "anytime": False}
    )
    create_and_teach(player, "probe", "finetune", tasks=2, recipe={"depth": 1})
    player.chapter("changed")
    player.create("changed", "class", recipe={**QUICK, "method": MEMORY["er"]}, **MLP)
    player.learn("changed", PAIRS[0])
    change = {"recipe": {"method": MEMORY["derpp"]}}
    player.ask("PATCH", "/v1/models/changed", "takes the buffer over", json=change)
    player.learn("changed", PAIRS[1])
    player.learn("changed", PAIRS[2], method="lwf", epochs=1)


def roll_back_and_follow(player: Player) -> None:
    """Roll production back, learn a batch without what was lost, and let production follow again."""
    create_and_teach(player, "rolled", "finetune")
    path = "/v1/models/rolled/aliases/production"
    player.ask("POST", f"{path}/rollback", json={"reason": "customers complain"})
    player.json("/v1/models/rolled")
    job = player.learn("rolled", PAIRS[3])
    player.json(f"/v1/jobs/{job}")
    waits = player.submit("rolled", PAIRS[4])
    player.json(f"/v1/jobs/{waits}", "waits")
    player.ask("POST", "/v1/models/rolled/tasks/3/discard", json={"reason": "was wrong"})
    player.wait(waits)
    player.ask("POST", f"{path}/follow")
    relearn = player.ask("POST", "/v1/models/rolled/tasks/3/relearn", json={})
    player.wait(relearn.json()["id"])


def hold_versions(player: Player) -> None:
    """Hold three versions at a gate, then promote one, retry one and continue past one."""
    for name, settle in (
        ("promoted", _promote_version),
        ("retried", _retry_job),
        ("continued", _continue_lineage),
    ):
        create_and_teach(player, name, "finetune", tasks=1)
        player.ask("PATCH", f"/v1/models/{name}", "a strict gate", json={"gate": NEVER})
        job = player.learn(name, PAIRS[1])
        player.json(f"/v1/models/{name}", "held")
        player.json(f"/v1/models/{name}/versions/2", "held")
        player.ask("PATCH", f"/v1/models/{name}", "no gate", json={"gate": dict.fromkeys(NEVER)})
        settle(player, name, job)
        player.learn(name, PAIRS[2])


def _promote_version(player: Player, name: str, _job: str) -> None:
    path = f"/v1/models/{name}/aliases/production"
    player.ask("PUT", path, json={"version": 2, "reason": "good enough for us"})
    player.ask("PUT", f"/v1/models/{name}/aliases/canary", json={"version": 1})


def _retry_job(player: Player, _name: str, job: str) -> None:
    again = player.ask("POST", f"/v1/jobs/{job}/retry", json={"recipe": {"epochs": 3}})
    player.wait(again.json()["id"])


def _continue_lineage(player: Player, name: str, _job: str) -> None:
    player.ask(
        "POST", f"/v1/models/{name}/tasks/2/continue", json={"reason": "the next one is better"}
    )


def fail_jobs(player: Player) -> None:
    """Let jobs fail, be rejected and be cancelled, and retry one."""
    create_and_teach(player, "failed", "finetune", tasks=1)
    job = player.learn("failed", PAIRS[1], "failed", optimizer={"lr": 1e30})
    player.json("/v1/models/failed", "a job failed")
    player.ask("POST", f"/v1/jobs/{job}/retry", json={"recipe": {}})
    player.wait(job)
    player.learn("failed", batches.build_unusable_batch(), "rejected")
    job = player.submit("failed", PAIRS[2], epochs=5000)
    player.wait(job, "running")
    player.ask("POST", f"/v1/jobs/{job}/cancel")
    player.wait(job)


def delete_data(player: Player) -> None:
    """Delete a task's images, a model's memory and a whole model."""
    for name in ("derpp", "icarl", "seasons"):
        player.chapter(f"{name}, task 1 deleted")
        player.ask("DELETE", f"/v1/models/{name}/tasks/1/data")
        player.json(f"/v1/models/{name}/metrics")
        player.json(f"/v1/models/{name}/memory")
    player.learn("derpp", PAIRS[3])
    player.learn("icarl", PAIRS[3])
    create_and_teach(player, "emptied", MEMORY["derpp"], tasks=2)
    player.ask("DELETE", "/v1/models/emptied/memory")
    player.learn("emptied", PAIRS[2])
    create_and_teach(player, "gone", "finetune", tasks=1)
    player.ask("DELETE", "/v1/models/gone")
    player.ask("GET", "/v1/models/gone")


def start_from_bases(player: Player) -> None:
    """Create models that start from another model's version, and from an upload."""
    create_and_teach(player, "child", "finetune", tasks=1, base={"model": "rolled", "version": 3})
    part = player.ask("GET", "/v1/models/heads/versions/1/files/backbone.1")
    weights = save({name.removeprefix("backbone."): t for name, t in load(part.content).items()})
    query = {"architecture": json.dumps(MLP["architecture"]), "image_size": 8, "channels": 1}
    headers = {"Content-Type": "application/safetensors"}
    made = player.ask("POST", "/v1/bases", params=query, content=weights, headers=headers)
    player.ask("POST", "/v1/bases", "no weights", params=query, content=b"nothing", headers=headers)
    player.json(f"/v1/bases/{made.json()['id']}")
    create_and_teach(player, "from-upload", "ewc-online", tasks=2, base=made.json()["id"])


def send_refused_requests(player: Player) -> None:
    """Send bad requests, and requests that change nothing."""
    player.chapter("refused")
    tasks, zip_ = "/v1/models/heads/tasks", {"Content-Type": "application/zip"}
    posts: dict[str, Json] = {
        "unknown field": {"name": "x", "scenario": "class", "colour": "red"},
        "taken name": {"name": "heads", "scenario": "class"},
        "bad recipe": {
            "name": "x",
            "scenario": "class",
            "recipe": {"method": {"name": "er", "buffer": -1}},
        },
        "method and scenario": {"name": "x", "scenario": "data", "recipe": {"method": "icarl"}},
        "no such method": {"name": "x", "scenario": "class", "recipe": {"method": "magic"}},
        "no such network": {"name": "x", "scenario": "class", "architecture": "magic"},
        "depth": {"name": "x", "scenario": "class", "recipe": {"depth": 9}},
    }
    for note, body in posts.items():
        player.ask("POST", "/v1/models", note, json=body)
    for path in (
        "",
        "/versions/99",
        "/versions/1/files/buffer",
        "/versions/1/download?format=onnx",
        "/tasks/9",
    ):
        player.ask("GET", f"/v1/models/{'heads' if path else 'nobody'}{path}")
    player.ask("GET", "/v1/models/derpp/versions/2/files/buffer")
    player.ask("GET", "/v1/jobs?state=sleeping")
    player.ask("POST", "/v1/jobs", "method not allowed")
    player.ask("POST", tasks, "no archive", content=b"hello", headers=zip_)
    player.ask(
        "POST", tasks, "wrong type", content=PAIRS[0][1], headers={"Content-Type": "text/plain"}
    )
    recipe = {**zip_, "Perennial-Recipe": '{"epochs": 0}'}
    player.ask("POST", tasks, "bad recipe", content=PAIRS[3][1], headers=recipe)
    player.ask(
        "POST", tasks, "check", content=PAIRS[3][1], headers=zip_, params={"validate": "only"}
    )
    player.ask(
        "POST",
        "/v1/models/heads/versions/1/predict?task=1&top_k=5000",
        files=_build_picture_files(0),
    )
    once = {"Idempotency-Key": "again"}
    for note in ("once", "the same again"):
        body = {"name": "once", "scenario": "class", **MLP}
        player.ask("POST", "/v1/models", note, json=body, headers=once)
    player.ask(
        "POST",
        "/v1/models",
        "another with its key",
        json={"name": "two", "scenario": "class"},
        headers=once,
    )


def read_as_other_owner(player: Player) -> None:
    """Read as another owner, who sees nothing of the first one's."""
    player.chapter("neighbour")
    made = player.ask(
        "POST", "/v1/keys", json={"name": "theirs", "owner": "neighbour", "scope": "write"}
    )
    theirs = {"Authorization": f"Bearer {made.json()['secret']}"}
    for path in ("/v1/models", "/v1/models/heads", "/v1/audit", "/v1/jobs"):
        player.ask("GET", path, headers=theirs)
    player.ask("GET", "/v1/models", "no key", headers={"Authorization": "Bearer pk_nothing"})


def pause_in_mid_task(player: Player) -> None:
    """Pause a job in the middle of its task, after a snapshot."""
    create_and_teach(player, PAUSED, MEMORY["derpp"], tasks=1)
    job = player.submit(PAUSED, PAIRS[1], epochs=300)
    player.wait_for_snapshot(job)
    player.ask("POST", f"/v1/jobs/{job}/pause")
    player.wait(job, "paused")


def resume_paused_job(player: Player) -> None:
    """Resume the paused job and wait for its end."""
    player.chapter("resumed")
    job = player.http.get(f"/v1/models/{PAUSED}/tasks/2").json()["job"]
    player.ask("POST", f"/v1/jobs/{job}/resume")
    assert player.wait(job)["state"] == "succeeded"


def learn_next_batches(player: Player, names: Collection[str] | None = None) -> None:
    """Teach each model one more batch: the named models, or all."""
    player.chapter("next")
    pages = player.http.get("/v1/models", params={"limit": 200}).json()["items"]
    for name in sorted(model["name"] for model in pages if names is None or model["name"] in names):
        data = next(model for model in pages if model["name"] == name)["scenario"] == "data"
        new = batches.build_batch("next", (0, 1, 2) if data else (8, 9), 3 * batches.IMAGES)
        player.learn(name, new)


def _build_picture_files(digit: int) -> list[tuple[str, tuple[str, bytes, str]]]:
    return [
        (
            "image",
            (
                f"{digit}.png",
                batches.encode_png(batches.read_digit_images(digit, 100, 1)[0]),
                "image/png",
            ),
        )
    ]


Play = Callable[[Player], None]
PLAYS: dict[str, Play] = {"full": play_scenario, "short": play_short_scenario}
