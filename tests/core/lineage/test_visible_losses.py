"""The losses that held-out images can reveal, in words; of one class, against the checks themselves."""

import pytest

from core.lineage.checks import ALL_OFF, NEW_GATE, build_version_comparison_gate_checks
from core.lineage.visible_losses import (
    describe_detectable_losses,
    find_smallest_detectable_class_loss,
)
from core.statistics.test_power import compute_detectable_loss_and_needed_images
from tests.core.lineage.test_checks import (
    make_class_comparison,
    make_comparisons,
    make_drift_comparison,
    make_gate_comparison,
)


def test_the_words_say_what_the_images_could_have_shown() -> None:
    seen = describe_detectable_losses(NEW_GATE, make_comparisons())
    assert seen is not None and seen["detail"] == (
        "The gate compared 100 held-out images of earlier tasks: it may miss a loss of less than 19 "
        "points, and with 210 more, one of less than 10. The smallest earlier class has 10 images "
        "among them, and could lose 6 of these unnoticed. To notice smaller losses, send more "
        "held-out images of each class, in the folder `test` of a batch."
    )
    few = {
        **make_comparisons(),
        "visible": vars(compute_detectable_loss_and_needed_images(5, 0.02)),
    }
    detail = describe_detectable_losses(NEW_GATE, few)["detail"]  # type: ignore[arg-type, index]
    assert detail.startswith(
        "The gate compared 5 held-out images of earlier tasks: too few to tell any loss from "
        "chance; with "
    )
    assert (
        describe_detectable_losses(
            NEW_GATE, make_comparisons(forgotten=make_gate_comparison(missing="no images"))
        )
        is None
    )
    assert describe_detectable_losses(ALL_OFF, make_comparisons()) is None


def describe_classes(*sizes: int) -> str:
    """Return the words about classes of these numbers of held-out images, all of one task."""
    classes = [make_class_comparison(f"class {n}", size, size) for n, size in enumerate(sizes)]
    total = sum(sizes)
    seen = describe_detectable_losses(
        NEW_GATE,
        make_comparisons(
            forgotten=make_gate_comparison(total),
            class_lost=make_gate_comparison(total, classes=classes),
            drifted=make_drift_comparison((total, 0, 0)),
        ),
    )
    assert seen is not None
    return seen["detail"]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (
            (5, 5),
            "Each earlier class has 5 images among them, and could lose 4 of these unnoticed.",
        ),
        ((5, 9), "The smallest earlier class has 5 images among them, and could lose 4 of these"),
        (
            (4, 4),
            "Each earlier class has 4 images among them, and could lose all of them unnoticed.",
        ),
        (
            (30, 30),
            "Each earlier class has 30 images among them, and could lose 6 of these unnoticed.",
        ),
    ],
)
def test_the_words_say_how_small_a_loss_of_one_class_is_noticed(
    sizes: tuple[int, ...], words: str
) -> None:
    assert words in describe_classes(*sizes)


def test_a_list_of_classes_that_was_cut_is_not_said_to_be_all() -> None:
    detail = describe_detectable_losses(
        NEW_GATE,
        make_comparisons(
            class_lost=make_gate_comparison(100, classes=[make_class_comparison("cat", 10, 10)])
        ),
    )
    assert detail is not None and "The smallest earlier class has 10 images" in detail["detail"]


@pytest.mark.parametrize("images", [3, 5, 8, 20, 60])
@pytest.mark.parametrize("others", [0, 40, 400])
def test_the_smallest_noticed_loss_is_the_first_at_which_a_check_fails(
    images: int, others: int
) -> None:
    total = images + others
    before = make_comparisons(
        forgotten=make_gate_comparison(total),
        class_lost=make_gate_comparison(
            total, classes=[make_class_comparison("cat", images, images)]
        ),
        drifted=make_drift_comparison((total, 0, 0), (200, 0, 0)),
    )

    def is_held(lost: int) -> bool:
        after = make_comparisons(
            forgotten=make_gate_comparison(total, lost),
            class_lost=make_gate_comparison(
                total, lost, classes=[make_class_comparison("cat", images, images, lost)]
            ),
            drifted=make_drift_comparison((total, lost, 0), (200, 0, 0)),
        )
        return not all(
            check["passed"]
            for check in build_version_comparison_gate_checks(NEW_GATE, after, "mdl_1")
        )

    failing = [lost for lost in range(1, images + 1) if is_held(lost)]
    assert find_smallest_detectable_class_loss(NEW_GATE, before, images) == (
        failing[0] if failing else None
    )
