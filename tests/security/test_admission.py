"""The attacks of `admission` on a running service: their costs, and none for other owners."""

import pytest

from core.requests.audit import MAX_DATA_BYTES
from core.requests.pages import MAX_PAGE_BYTES
from tests.rest import Rest
from tests.security import admission
from tools import service

pytestmark = pytest.mark.slow


def test_recipes_of_one_huge_name_are_refused_and_never_stored(
    running: service.RunningService,
) -> None:
    cost = admission.send_huge_recipes(running, models=8)
    assert cost.answers == {422: 8, 200: 3}
    assert cost.api_mb < 100


def test_models_of_long_labels_are_listed_in_pages_that_are_bounded(
    running: service.RunningService,
) -> None:
    cost = admission.send_long_labels(running, models=20)
    assert cost.answers == {201: 20, 200: 3}
    assert cost.api_mb < 150
    admin = Rest(running.url, running.key)
    page = admin.call("GET", "/v1/models", params={"limit": 200})
    assert len(page.content) < MAX_PAGE_BYTES + 100_000 and page.json()["next_cursor"] is not None
    assert len(admin.items("/v1/models")) >= 20
    rows = admin.items("/v1/audit")
    assert rows and all(len(str(row["data"])) < 2 * MAX_DATA_BYTES for row in rows)


def test_bases_without_a_body_start_no_process(running: service.RunningService) -> None:
    cost = admission.send_bases_without_body(running)
    assert cost.answers == {422: 16}
    assert cost.others == 0


@pytest.mark.campaign  # tests/api/limits/test_heavy_work.py shows turns
def test_bases_of_many_architectures_start_one_process_of_an_owner_at_once(
    running: service.RunningService,
) -> None:
    cost = admission.send_tiny_bases(running, requests=2)
    assert cost.answers == {422: 2}
    assert cost.others == 1


def test_a_network_beyond_every_machine_is_refused_with_its_parameters(
    running: service.RunningService,
) -> None:
    status, answer = admission.request_huge_network(running)
    assert status == 422 and "55,566,401,536 parameters" in answer["detail"]
