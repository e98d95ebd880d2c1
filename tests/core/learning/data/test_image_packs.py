"""Images of a memory are stored once: what a version adds, what it shares, and what older code has
stored.
"""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest
import torch
from conformance import SMALL
from streams import Bench, Learned

from core.contract.jobs.job_spec import LocalVersionPartFile
from core.learning.data import image_packs
from core.learning.memory.reservoir import ReservoirBuffer
from core.learning.methods import registry
from core.learning.state import MethodStateSection, load_tensors, save_tensors
from core.learning.training.control import EmptyControlRequestSource

BEFORE = Path(__file__).parents[3] / "data" / "before-packs.tar.gz"
"""See `tests/data/make_before_packs.py`."""
KEEPERS = ["a-gem", "der", "der++", "der-net", "dlcft", "dne", "er", "gem", "icarl"]
IMAGE_BYTES = 6 * 6
HEADER_BYTES = 200


def build_memory(pixels: list[int], tasks: list[int]) -> dict[str, torch.Tensor]:
    """Build a memory of images [2, 2, 1] of one value each."""
    images = (
        torch.tensor(pixels, dtype=torch.uint8)[:, None, None, None]
        .expand(-1, 2, 2, 1)
        .contiguous()
    )
    return {"images": images, "tasks": torch.tensor(tasks), "labels": torch.arange(len(tasks))}


class Versions:
    """Memories of one version after another, as files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[bytes] = set()
        self.parts: list[LocalVersionPartFile] = []

    def store(self, held: dict[str, torch.Tensor]) -> dict[str, int]:
        """Write the next version; images in each pack that no version has had before."""
        packs = image_packs.load_replay_image_packs("buffer", self.parts)
        fresh, self.parts = {}, []
        for name, kind, content in image_packs.build_parts_of_state_type("buffer", held, packs):
            path = self._folder / f"{len(list(self._folder.iterdir()))}"
            save_tensors(content, path)
            digest = hashlib.sha256(path.read_bytes()).digest()
            if "images" in content and digest not in self._known:
                fresh[name.rpartition(".")[2]] = len(content["images"])
            self._known.add(digest)
            self.parts.append(LocalVersionPartFile(name=name, type=kind, path=path))
        return fresh

    def load(self) -> dict[str, torch.Tensor]:
        return image_packs.read_method_state(self.parts)["buffer"]


@pytest.fixture
def versions(tmp_path) -> Versions:
    return Versions(tmp_path)


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype, name


def test_a_memory_is_read_as_it_was_stored(versions) -> None:
    held = build_memory([5, 7, 5, 9, 5], [2, 1, 2, 1, 1])
    versions.store(held)
    assert_same(versions.load(), held)


def test_an_image_that_is_remembered_twice_is_stored_once(versions) -> None:
    assert versions.store(build_memory([5, 5, 6], [1, 1, 1])) == {"1": 2}


def test_an_image_that_two_tasks_brought_is_in_the_packs_of_both(versions) -> None:
    """Or deleting the images of one task would take the other's."""
    versions.store(build_memory([5, 5, 6], [1, 2, 2]))
    packs = image_packs.load_replay_image_packs("buffer", versions.parts)
    assert {task: pack[:, 0, 0, 0].tolist() for task, pack in packs.items()} == {1: [5], 2: [5, 6]}


def test_what_is_left_of_a_task_stays_in_its_pack(versions) -> None:
    versions.store(build_memory([1, 2, 3, 4], [1, 1, 1, 1]))
    left = build_memory([8, 4, 2], [2, 1, 1])
    assert versions.store(left) == {"2": 1}
    assert_same(versions.load(), left)


def test_a_task_that_is_forgotten_has_no_pack(versions) -> None:
    versions.store(build_memory([1, 2], [1, 1]))
    versions.store(build_memory([3], [2]))
    assert set(image_packs.load_replay_image_packs("buffer", versions.parts)) == {2}


def test_images_that_a_pack_lacks_are_never_taken_for_others(versions) -> None:
    """A task may be learned again from other images."""
    versions.store(build_memory([1, 2], [1, 1]))
    again = build_memory([3, 2], [1, 1])
    assert versions.store(again) == {"1": 2}
    assert_same(versions.load(), again)


@pytest.mark.parametrize(("brought", "written"), [(21, {}), (22, {"1": 1})])
def test_a_pack_of_which_almost_nothing_is_left_is_written_again(
    versions, brought, written
) -> None:
    versions.store(build_memory(list(range(brought)), [1] * brought))
    assert versions.store(build_memory([4], [1])) == written
    assert_same(versions.load(), build_memory([4], [1]))


def test_whatever_leaves_versions_add_little_more_than_the_images_that_came(versions) -> None:
    """The worst that can happen to packs: nearly all of them leave, again and again."""
    came = added = 0
    pixels = iter(range(256))
    for task in range(1, 6):
        brought = [next(pixels) for _ in range(45)]
        for kept in (45, 2, 1):
            left = [next(iter(brought))] if kept == 1 else brought[:kept]
            added += sum(versions.store(build_memory(left, [task] * len(left))).values())
        came += len(brought)
    assert came < added <= 1.05 * came


def test_over_many_tasks_a_reservoir_adds_what_came_and_its_packs_stay_few_times_its_size(
    versions,
) -> None:
    held, capacity, came, added = MethodStateSection(), 60, 0, 0
    before: set[tuple[int, bytes]] = set()
    for task in range(1, 31):
        images = torch.randint(0, 256, (60, 3, 3, 1), dtype=torch.uint8)
        ReservoirBuffer(held, capacity, seed=0).offer_items_to_reservoir(
            images.__getitem__, torch.zeros(60, dtype=torch.int64), task
        )
        added += sum(versions.store(held.to_tensors()).values())
        tasks = held.tensors["tasks"].tolist()
        now = {(t, i.numpy().tobytes()) for t, i in zip(tasks, held.tensors["images"], strict=True)}
        came, before = came + len(now - before), now
        packs = image_packs.load_replay_image_packs("buffer", versions.parts).values()
        assert sum(len(pack) for pack in packs) < 5 * capacity
    assert came <= added <= 1.05 * came


def test_an_empty_memory_is_read_as_it_was_stored(versions) -> None:
    held = {name: tensor[:0] for name, tensor in build_memory([1], [1]).items()}
    versions.store(held)
    assert_same(versions.load(), held)


def test_packs_that_vanish_while_a_task_is_learned_are_shared_all_the_same(tmp_path) -> None:
    """A cache may drop files that were fetched long ago."""
    bench = Bench(tmp_path, recipe={"method": {"name": "er", "buffer": 20}})
    first = bench.learn_task(1)
    kept = first.digests["buffer.images.1"]
    file = first.folder / "parts" / "buffer.images.1.safetensors"

    class Trimmed(EmptyControlRequestSource):
        @property
        def has_pending_request(self) -> bool:
            file.unlink(missing_ok=True)
            return False

    second = bench.learn(bench.spec(2, first), Trimmed())
    assert not file.exists() and second.digests["buffer.images.1"] == kept


def test_a_memory_without_one_of_its_packs_is_refused(versions) -> None:
    versions.store(build_memory([1, 2], [1, 2]))
    versions.parts = [part for part in versions.parts if part.name != "buffer.images.2"]
    with pytest.raises(ValueError, match="images of task 2"):
        versions.load()


@pytest.mark.slow
@pytest.mark.parametrize("name", KEEPERS)
def test_no_method_stores_images_again_that_its_parent_has(tmp_path, name) -> None:
    bench = Bench(tmp_path)
    if families := registry.get_method(name).accepts.architectures:
        bench.architecture = SMALL[families[0]]
    known: dict[str, int] = {}
    learned = None
    for number in (1, 2, 3):
        learned = bench.learn_task(number, learned, method=name)
        (kind,) = {p["type"] for p in learned.result["parts"]} & {"buffer", "exemplars"}
        brought = learned.tensors(kind)["images"][learned.tensors(kind)["tasks"] == number]
        packs = {n: d for n, d in learned.digests.items() if n.startswith(f"{kind}.images.")}
        sizes = {
            d: (learned.folder / "parts" / f"{n}.safetensors").stat().st_size
            for n, d in packs.items()
        }
        new = sum(size for digest, size in sizes.items() if digest not in known)
        assert 0 < new <= len(brought.flatten(1).unique(dim=0)) * IMAGE_BYTES + HEADER_BYTES
        assert learned.tensors(kind)["images"].shape[0] > len(brought) or number == 1
        known |= sizes


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(BEFORE) as archive:
        # Python 3.11 before 3.11.4 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder


STORED_BEFORE = [("der++", "buffer"), ("gem", "buffer"), ("icarl", "exemplars")]


@pytest.mark.parametrize(
    "resumed", [False, True], ids=["from its start", "from a snapshot of before"]
)
@pytest.mark.parametrize(("name", "kind"), STORED_BEFORE)
def test_a_memory_that_older_code_stored_goes_on_row_by_row(
    tmp_path, before, name, kind, resumed
) -> None:
    bench = Bench(tmp_path, recipe={"method": _read_method(before / name)})
    second = Learned(bench.spec(2, None), [], before / name / "task-2")
    assert list(image_packs.load_replay_image_packs(kind, list_parts(second))) == []
    expected = load_tensors(before / name / "task-3" / "parts" / f"{kind}.safetensors")
    spec = bench.spec(3, second)
    spec["snapshot"] = str(before / name / "snapshot") if resumed else None
    third = bench.learn(spec)
    found = third.tensors(kind)
    assert found.keys() == expected.keys()
    for of, tensor in expected.items():
        if tensor.is_floating_point():  # logits: another processor may round otherwise
            torch.testing.assert_close(found[of], tensor)
        else:
            assert torch.equal(found[of], tensor), of
    assert set(image_packs.load_replay_image_packs(kind, list_parts(third))) == {1, 2, 3}


def list_parts(learned: Learned) -> list[LocalVersionPartFile]:
    return [LocalVersionPartFile.from_json(part) for part in learned.as_parent()["parts"]]


def _read_method(folder: Path) -> dict[str, object]:
    """Return the method with its hyper-parameters, as the manifest of then names it."""
    made = json.loads((folder / "task-2" / "result.json").read_text())["method"]
    return {"name": made["name"], **made["hyper"]}
