"""The accuracy matrix over HTTP."""

import pytest


def test_rows_columns_cells_and_summary_fit_together(client, model, publish):
    publish(model, cells={1: (9, 10)})
    publish(model, cells={1: (7, 10), 2: (8, 10)})
    found = client.get(f"/v1/models/{model}/metrics").json()
    assert found["version"] == 2
    assert [r["version"] for r in found["rows"]] == [0, 1, 2]
    assert [(c["task"], c["name"], c["classes"]) for c in found["columns"]] == [
        (1, "week 1", ["cat", "dog"]),
        (2, "week 2", ["cat", "dog"]),
    ]
    assert found["accuracy_matrix"] == [[None, None], [0.9, None], [0.7, 0.8]]
    assert found["summary"]["acc"] == pytest.approx(0.75)
    assert found["summary"]["bwt"] == pytest.approx(-0.2)
    assert found["summary"]["forgetting"] == pytest.approx(0.2)


def test_figures_that_are_not_defined_are_null(client, model):
    found = client.get(f"/v1/models/{model}/metrics").json()
    assert found["columns"] == [] and found["accuracy_matrix"] == [[]]
    assert found["summary"]["acc"] is None and found["summary"]["bwt"] is None


def test_the_summary_follows_the_asked_version(client, model, publish):
    publish(model, cells={1: (9, 10)})
    publish(model, cells={1: (7, 10), 2: (8, 10)})
    assert client.get(f"/v1/models/{model}/metrics?version=1").json()["summary"]["acc"] == pytest.approx(0.9)
    assert client.get(f"/v1/models/{model}/metrics?version=7").status_code == 404
