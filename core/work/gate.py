"""What a version must show before `production` moves to it.

Limits that are not set are not checked. A figure that is undefined (such as forgetting after the first
task) passes with value None; one that is no finite number does not.
"""

import math
from collections.abc import Mapping
from typing import Any

from core.matrix import Cells, Row, summary


def verdict(
    gate: Mapping[str, Any],
    rows: list[Row],
    cells: Cells,
    version: int,
    scenario: str,
    predicted_rise: float | None = None,
) -> dict[str, Any]:
    """Judge `version` by the model's gate: `{"passed", "checks": [{name, limit, value, passed}]}`.

    predicted_rise: of the earlier tasks' mean loss, where the method forecasts it.
    """
    figures = summary(rows, cells, version, scenario)
    own = next(row.task for row in rows if row.version == version)
    correct, total = cells.get((version, own), (0, 0)) if own is not None else (0, 0)
    values = {
        "max_forgetting": figures["forgetting"],
        "min_new_task": correct / total if total else None,
        "min_acc": figures["acc"],
        "max_predicted_loss_rise": predicted_rise,
    }
    checks = []
    for name, value in values.items():
        limit = gate.get(name)
        if limit is None:
            continue
        passed = True
        if isinstance(value, float):
            passed = value <= limit if name.startswith("max_") else value >= limit
            value = value if math.isfinite(value) else None  # JSON has no other numbers
        checks.append({"name": name, "limit": limit, "value": value, "passed": passed})
    return {"passed": all(check["passed"] for check in checks), "checks": checks}
