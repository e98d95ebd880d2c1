"""A task's report after an edit."""

from typing import cast

from core.contract.edit import TaskReportFactsChangedByEdit
from core.contract.reports.data_report import Suspect
from core.contract.reports.report import BatchReport
from core.edits.reports import EditChangesForDataReports, build_batch_report_after_edit


def build_suspect(index: int, label: str, suggested: str) -> Suspect:
    path = f"{index}.png"
    return {"index": index, "path": path, "label": label, "suggested": suggested, "score": 2.0}


def build_report() -> BatchReport:
    near = {"count": 1, "examples": [{"path": "1.png", "like": "9.png"}]}
    report = {
        "classes": {
            "new": ["tee", "cap"],
            "known": ["hat"],
            "look_alike": [{"label": "tee", "like": "tree"}, {"label": "cap", "like": "cup"}],
        },
        "duplicate_paths": [{"path": "1.png", "same_as": "2.png"}],
        "conflicts": [
            {"paths": ["0.png", "1.png"], "labels": ["tee", "cap"], "picture": "data:…"},
            {"paths": ["3.png", "4.png"], "labels": ["tee", "cap"]},
        ],
        "data": {
            "balance": {
                "tee": {"images": 6, "held_out": 2},
                "tshirt": {"images": 4, "held_out": 1},
                "cap": {"images": 3, "held_out": 1},
            },
            "imbalance_ratio": 2.0,
            "few": ["cap", "tshirt"],
            "near_duplicates": {
                **{"within": near, "held_out": {"count": 0, "examples": []}},
                "earlier": [{"task": 1, "count": 1, "held_out": 0, **near}],
                **{"not_compared": [], "complete": True},
            },
            "suspects": [
                build_suspect(1, "cap", "tee"),
                build_suspect(3, "tee", "tshirt"),
                build_suspect(5, "cap", "tee"),
            ],
            "suspects_count": 7,
            "would_say": [{"label": "tee", "said": "hat", "images": 1}],
        },
    }
    return cast(BatchReport, report)


def test_merged_and_removed_images_leave_numbers_and_names() -> None:
    report = build_report()
    edited = build_batch_report_after_edit(
        report,
        2,
        EditChangesForDataReports(
            {"tee": "T-shirt", "tshirt": "T-shirt", "hat": None},
            ["1.png"],
            {
                2: TaskReportFactsChangedByEdit(
                    classes={"T-shirt": 10, "cap": 2}, touched=[1, 2], removed=[1]
                )
            },
        ),
    )
    assert report == build_report(), "the former report is kept for an undo"
    assert edited["classes"] == {
        "new": ["T-shirt", "cap"],
        "known": [],
        "look_alike": [{"label": "cap", "like": "cup"}],
    }
    assert edited["duplicate_paths"] == []
    assert [one["paths"] for one in edited["conflicts"]] == [["3.png", "4.png"]]
    data = edited["data"]
    assert data["balance"] == {
        "T-shirt": {"images": 10, "held_out": 3},
        "cap": {"images": 2, "held_out": 1},
    }
    assert (data["imbalance_ratio"], data["few"]) == (5.0, ["cap"])
    near = data["near_duplicates"]
    assert near["within"]["examples"] == [] and near["earlier"][0]["examples"] == []
    # One is gone, one is settled by the merge, and one has another number now.
    assert data["suspects"] == [{**build_suspect(5, "cap", "T-shirt"), "index": 4}]
    assert data["suspects_count"] == 5 and data["would_say"] == []


def test_the_report_of_another_task_loses_removed_images_alone() -> None:
    edited = build_batch_report_after_edit(
        build_report(), 3, EditChangesForDataReports({}, ["1.png"])
    )
    assert edited["data"]["balance"] == build_report()["data"]["balance"]
    assert edited["duplicate_paths"] == [] and len(edited["conflicts"]) == 1
    assert [one["index"] for one in edited["data"]["suspects"]] == [3, 5]
