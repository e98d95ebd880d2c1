"""The metrics compared with a slow, simple implementation.

This second implementation reads every cell and every whole manifest.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pydantic_core import to_json
from sqlalchemy import select

from core.contract.figures import VersionFigures
from core.contract.jobs.job_result import MeasuredMatrixCell
from core.contract.manifest import Manifest
from core.database import measurements
from core.database.measurements import replace_manifest_figures_by_null
from core.database.session import Database
from core.database.tables import Model, Task, Version, VersionTaskResult
from core.ids import new_id
from core.lineage import lineage
from core.lineage.coverage import list_taught_tasks, list_taught_tasks_with_new_task
from core.lineage.judgement import judge_version_by_gate
from core.publishing.job_measurements import NewVersionMeasurements, store_version_measurements
from core.requests.actor import Actor
from core.requests.response_cache import ResponseCache
from core.statistics import matrix
from core.versions.metrics import (
    MatrixWindow,
    get_or_build_metrics_json,
    read_model_accuracy_metrics,
)
from tests.core.desk import Desk

ADMIN = Actor("", None, "admin")
LABELS = ("cat", "dog", "hen")
CHANGES: list[tuple[type[Version] | type[Task], str, Any]] = [
    (Version, "status", "held"),
    (Version, "bytes", 12_345),
    (Task, "name", "renamed"),
    (Task, "n_held_out", 4_321),
    (Task, "classes", {"ant": 1}),
]
"""Columns that the metrics show besides cells and figures, each with a new value."""


class History:
    """A model with random versions.

    There are rollbacks, tasks learned again, cells without a measurement, and deleted data.
    """

    def __init__(self, desk: Desk, seed: int) -> None:
        self.draw = random.Random(seed)
        self.db = desk.db
        scenario = self.draw.choice(("data", "task", "class"))
        self.model = desk.model(scenario, classes=list(LABELS) if scenario == "data" else None)
        self.deleted: set[int] = set()
        self.known = {
            "scenario": scenario,
            "architecture": {"name": "mlp"},
            "image": {"size": 8, "channels": 3},
        }
        self.manifests: dict[int, dict[str, Any]] = {0: {"tasks": [], **self.known}}
        for _ in range(self.draw.randint(0, 9)):
            self._publish()

    def _publish(self) -> None:
        draw = self.draw
        with self.db.write() as session:
            model = session.get_one(Model, self.model)
            parent = lineage.find_version_by_number(session, model, self._parent())
            assert parent is not None
            known = list_taught_tasks(parent.manifest)
            again = [n for n in range(1, model.next_task) if n not in known]
            task = (
                draw.choice(again) if again and draw.random() < 0.4 else self._task(session, model)
            )
            if draw.random() < 0.15:
                self.deleted.add(draw.randint(1, task))
            manifest = {
                "tasks": list_taught_tasks_with_new_task(parent.manifest, task),
                **self.known,
                **self._figures(task),
            }
            document = Manifest.from_json(manifest)
            manifest = document.to_json()
            number = model.next_version
            model.next_version = model.head = number
            model.next_version += 1
            version = Version(
                id=new_id("ver"), model_id=model.id, number=number, parent=parent.number, task_number=task,
                status="published", gate={}, manifest=replace_manifest_figures_by_null(document),
                bytes=draw.randint(1, 99), bytes_new=0,
                created_at=0.0,
            )  # fmt: skip
            session.add(version)
            session.flush()
            cells = [self._cell("new", n) for n in manifest["tasks"] if draw.random() < 0.85]
            cells += [
                self._cell(which, task) for which in ("base", "parent") if draw.random() < 0.7
            ]
            store_version_measurements(
                session,
                model,
                version,
                NewVersionMeasurements(
                    cells, VersionFigures(**document.get_explicitly_set_field_values()), {}
                ),
                self.deleted,
            )
        self.manifests[number] = {
            name: _remove_tasks(told, self.deleted) if name in measurements.NAMES else told
            for name, told in manifest.items()
        }

    def _parent(self) -> int:
        """Return mostly the newest version; otherwise the lineage was rolled back."""
        newest = max(self.manifests)
        return newest if self.draw.random() < 0.75 else self.draw.randint(0, newest)

    def _task(self, session: Any, model: Model) -> int:
        number = model.next_task
        model.next_task += 1
        held_out = self.draw.choice((None, 7))
        labels = self.draw.sample(LABELS, self.draw.randint(1, 3))
        task = Task(
            id=new_id("tsk"), model_id=model.id, number=number, name=f"week {number}", sha256="0" * 64, bytes=1,
            media_type="zip", classes=dict.fromkeys(labels, 2), n_held_out=held_out, report={}, warnings=[],
            created_at=0.0,
        )  # fmt: skip
        session.add(task)
        session.flush()
        return number

    def _cell(self, version: str, task: int) -> MeasuredMatrixCell:
        """Return a cell with the same number of images for a task each time.

        Every fifth task has no images.
        """
        total = 0 if task % 5 == 4 else 20 + task
        correct = self.draw.randint(0, total)
        cat = min(correct, 9)
        per_class = {"cat": [cat, 9], "dog": [correct - cat, total - 9]} if total else {}
        return MeasuredMatrixCell(
            version=version, task=task, correct=correct, total=total, per_class=per_class
        )

    def _figures(self, task: int) -> dict[str, Any]:
        draw = self.draw
        told = sorted(draw.sample(range(1, task + 1), draw.randint(0, task)), key=str)

        def draw_counts() -> list[int]:
            return [draw.randint(0, 9), 9]

        point = {
            "step": 1,
            "best_step": 1,
            "validation": 0.5,
            "accuracy": {str(t): draw.random() for t in told},
        }
        figures: dict[str, Any] = {
            "update_norm": {
                "backbone": draw.random(),
                "head": draw.random(),
                "relative": None,
            },
            "drift": draw.random(),
            "changes": {
                str(t): {"regressed": 1, "improved": draw.randint(0, 5), "total": 9} for t in told
            },
            "knn_probe": {
                "all": draw_counts(),
                "tasks": {str(t): draw_counts() for t in told},
                "before": {"base": draw_counts(), "parent": draw_counts()},
            },
            **{
                name: {
                    "all": draw_counts(),
                    "own": draw_counts(),
                    "tasks": {str(t): draw_counts() for t in told},
                }
                for name in ("baseline_ncm", "baseline_lda")
            },
            "baseline_later": {str(t): {str(t): draw.randint(1, 9)} for t in told},
            "calibration": {
                **{"error": draw.random(), "low": -0.1, "high": 1.1, "raw": 0.5, "images": 60},
                "bins": [{"images": 60, "probability": draw.random(), "right": 30}],
            },
            "adp": {"mean": {str(t): draw.random() for t in told}, "curve": [point, point]},
            "forecast": {
                "predicted": draw.choice((None, draw.random())),
                "measured": draw.random(),
                "tasks": {
                    str(t): {"predicted": None, "before": 1.0, "after": draw.random()} for t in told
                },
            },
        }
        return {name: told if draw.random() < 0.7 else None for name, told in figures.items()}


def _remove_tasks(told: Any, tasks: set[int]) -> Any:
    """Remove the entries of some tasks from a figure, at any depth."""
    if isinstance(told, list):
        return [_remove_tasks(one, tasks) for one in told]
    if not isinstance(told, dict):
        return told
    return {
        key: _remove_tasks(value, tasks)
        for key, value in told.items()
        if key not in map(str, tasks)
    }


def compute_metrics_slowly(
    db: Database, model_id: str, version: int, manifests: Mapping[int, Any]
) -> dict[str, Any]:
    """Return rows, columns, matrix and summary from all cells."""
    with db.read() as session:
        model = session.get_one(Model, model_id)
        versions = (
            session.query(Version).filter_by(model_id=model_id).order_by(Version.number).all()
        )
        tasks = {t.number: t for t in session.query(Task).filter_by(model_id=model_id)}
        results = session.query(VersionTaskResult).filter_by(model_id=model_id).all()
    rows = [
        matrix.AccuracyMatrixVersion(v.number, v.task_number, v.parent, tuple(v.manifest.tasks))
        for v in versions
    ]
    cells = {(r.version, r.task): (r.correct, r.total) for r in results}
    per_class = {(r.version, r.task): r.per_class for r in results}
    sizes = {r.task: r.total for r in results}
    learned = sorted({row.task for row in rows if row.task is not None})
    classes = {number: list(tasks[number].classes) for number in learned}
    stages = matrix.LineageAccuracyMatrix(rows, cells, version, model.scenario)
    along = [manifests[row.version] for row in stages.line]
    size = {v.number: v.bytes for v in versions}
    return {
        "version": version,
        "rows": [
            {"version": r.version, "task": r.task, "parent": r.parent, "status": "published"}
            for r in rows
        ],
        "columns": [
            {
                "task": n,
                "name": tasks[n].name,
                "classes": sorted(tasks[n].classes),
                "n": sizes.get(n, 0) if tasks[n].n_held_out is None else tasks[n].n_held_out,
            }
            for n in learned
        ],
        "accuracy_matrix": matrix.build_accuracy_matrix(rows, learned, cells),
        "marks": [],
        "summary": {
            **matrix.summarise_lineage_accuracy_matrix(
                matrix.LineageAccuracyMatrix(rows, cells, version, model.scenario),
                per_class=per_class,
            ),
            **compute_metrics_from_manifests(along),
            "sure": None,
            "seconds": [None for _ in stages.line[1:]],
            "bytes": [size[row.version] for row in stages.line[1:]],
            "degenerate": matrix.find_single_class_tasks(stages, classes),
            "unmeasured_classes": matrix.find_learned_classes_without_test_images(
                stages, per_class, classes
            ),
        },
        "definitions": matrix.DEFINITIONS,
    }


def compute_metrics_from_manifests(along: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures that whole manifests give along a lineage."""

    def compute_share(counts: Sequence[int] | None) -> float | None:
        return counts[0] / counts[1] if counts and counts[1] else None

    def forward(probe: Mapping[str, Any] | None) -> float | None:
        before = (probe or {}).get("before", {})
        parent, base = compute_share(before.get("parent")), compute_share(before.get("base"))
        return None if parent is None or base is None else parent - base

    def list_manifest_values(name: str, key: str) -> list[float | None]:
        return [(manifest.get(name) or {}).get(key) for manifest in along[1:]]

    changes = (along[-1].get("changes") or {}).values()
    lost, gained = matrix.compute_regression_and_improvement_rates(
        (c["regressed"], c["improved"], c["total"]) for c in changes
    )
    probe = along[-1].get("knn_probe")
    means = [(manifest.get("adp") or {}).get("mean") for manifest in along[1:]]
    return {
        "calibration": along[-1].get("calibration"),
        "fwt_probe": matrix.average_defined_values(forward(manifest.get("knn_probe")) for manifest in along[1:]),
        "regression_rate": lost,
        "improvement_rate": gained,
        "update_norm": list_manifest_values("update_norm", "backbone"),
        "update_norm_head": list_manifest_values("update_norm", "head"),
        "update_norm_relative": list_manifest_values("update_norm", "relative"),
        "drift": [manifest.get("drift") for manifest in along[1:]],
        **{
            name: [compute_share((manifest.get(name) or {}).get("all")) for manifest in along[1:]]
            for name in ("baseline_ncm", "baseline_lda")
        },
        "predicted_loss_rise": list_manifest_values("forecast", "predicted"),
        "measured_loss_rise": list_manifest_values("forecast", "measured"),
        "adp_mean": [
            None
            if told is None
            else [{"task": t, "accuracy": a} for t, a in sorted((int(t), a) for t, a in told.items())]
            for told in means
        ],
        "knn_probe": probe
        and {
            "accuracy": compute_share(probe["all"]),
            "per_task": [
                {"task": t, "accuracy": compute_share(c)} for t,
                    c in sorted((int(t), c) for t, c in probe["tasks"].items())
            ],
        },
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 40), marks=pytest.mark.campaign)], ids=str
)
def test_every_figure_of_every_version_is_that_of_all_cells(desk: Desk, seeds: range) -> None:
    for seed in seeds:
        history = History(desk, seed)
        for version in history.manifests:
            expected = compute_metrics_slowly(desk.db, history.model, version, history.manifests)
            assert (
                read_model_accuracy_metrics(desk.db, ADMIN, history.model, version=str(version))
                == expected
            ), seed


def test_whole_manifests_are_put_together_again(desk: Desk) -> None:
    for seed in range(5):
        history = History(desk, seed)
        assert [m for m in desk.manifests(history.model) if m["tasks"]] == [
            m for m in history.manifests.values() if m["tasks"]
        ]


def test_a_gate_sees_the_figures_of_all_cells(desk: Desk) -> None:
    names = ("max_forgetting", "min_new_task", "min_acc")
    for seed in range(8):
        history = History(desk, seed)
        with desk.db.write() as session:
            model = session.get_one(Model, history.model)
            model.gate = dict.fromkeys(names, 0.5)
            for number in list(history.manifests)[1:]:
                version = lineage.find_version_by_number(session, model, number)
                assert version is not None
                checks = {
                    check["name"]: check["value"]
                    for check in judge_version_by_gate(session, model, version)["checks"]
                }
                summary = compute_metrics_slowly(desk.db, model.id, number, history.manifests)[
                    "summary"
                ]
                now = {one["task"]: one["now"] for one in summary["per_task"]}
                expected = (summary["forgetting"], now[version.task_number], summary["acc"])
                assert tuple(checks[name] for name in names) == expected, (seed, number)


def test_a_window_shows_its_rows_and_columns_and_the_whole_summary(desk: Desk) -> None:
    history = History(desk, 3)
    whole = read_model_accuracy_metrics(desk.db, ADMIN, history.model, version="2")
    assert len(whole["rows"]) > 4 and len(whole["columns"]) > 2
    part = read_model_accuracy_metrics(
        desk.db, ADMIN, history.model, version="2", window=MatrixWindow((2, 3), (2, 2))
    )
    assert part["rows"] == whole["rows"][2:4]
    assert part["columns"] == [column for column in whole["columns"] if column["task"] == 2]
    at = whole["columns"].index(part["columns"][0])
    assert part["accuracy_matrix"] == [row[at : at + 1] for row in whole["accuracy_matrix"][2:4]]
    assert part["summary"] == whole["summary"]


def test_an_answer_that_is_kept_is_what_a_new_one_would_be_after_each_change(desk: Desk) -> None:
    kept, whole = ResponseCache(1 << 20), MatrixWindow()
    history = History(desk, 3)

    def load_and_check_metrics(version: str = "latest", window: MatrixWindow = whole) -> bytes:
        asked = (desk.db, ADMIN, history.model)
        answer = get_or_build_metrics_json(*asked, kept, version=version, window=window)
        assert get_or_build_metrics_json(*asked, kept, version=version, window=window) is answer, (
            "nothing has changed"
        )
        assert answer.body == to_json(
            read_model_accuracy_metrics(*asked, version=version, window=window)
        )
        return answer.body

    seen = [
        load_and_check_metrics(),
        load_and_check_metrics("1"),
        load_and_check_metrics("2"),
        load_and_check_metrics(window=MatrixWindow((1, 2), (1, 2))),
    ]
    history._publish()
    seen.append(load_and_check_metrics() + load_and_check_metrics("1"))
    for table, column, value in CHANGES:
        with desk.db.write() as session:
            of_model = table.model_id == history.model  # type: ignore[attr-defined]
            row = session.scalars(select(table).where(of_model, table.number == 1)).one()  # type: ignore[attr-defined]
            setattr(row, column, value)
        seen.append(load_and_check_metrics() + load_and_check_metrics("1"))
    assert len(set(seen)) == len(seen)


def test_a_window_beyond_the_matrix_is_empty(desk: Desk) -> None:
    history = History(desk, 3)
    found = read_model_accuracy_metrics(
        desk.db, ADMIN, history.model, version="1", window=MatrixWindow((900, 999), (900, 999))
    )
    assert found["rows"] == found["columns"] == found["accuracy_matrix"] == []
