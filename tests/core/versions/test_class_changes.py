"""Effects of an update on each class: parent and version are compared on the same images."""

import pytest

from core.versions.class_changes import _compare_class_counts


def compare_counts(now, before, known, apart=False):
    return {
        (one.task, one.label): (one.before, one.now, one.images)
        for one in _compare_class_counts(now, before, known, apart)
    }


def test_a_known_class_is_compared_on_the_images_of_which_both_were_asked():
    now = {(1, "cat"): [8, 10], (2, "cat"): [9, 10], (3, "cat"): [1, 10]}
    before = {(1, "cat"): [9, 10], (2, "cat"): [4, 10]}  # of task 2 before it was learned
    assert compare_counts(now, before, {1}) == {(None, "cat"): (13, 17, 20)}


def test_a_class_that_the_parent_was_not_taught_is_new():
    now, before = (
        {(1, "cat"): [8, 10], (2, "owl"): [9, 10]},
        {(1, "cat"): [9, 10], (2, "owl"): [0, 10]},
    )
    assert compare_counts(now, before, {1}) == {
        (None, "cat"): (9, 8, 10),
        (None, "owl"): (None, 9, 10),
    }


def test_where_tasks_have_heads_of_their_own_a_label_is_another_class_in_each():
    now, before = (
        {(1, "cat"): [8, 10], (2, "cat"): [9, 10]},
        {(1, "cat"): [9, 10], (2, "cat"): [0, 10]},
    )
    assert compare_counts(now, before, {1}, apart=True) == {
        (1, "cat"): (9, 8, 10),
        (2, "cat"): (None, 9, 10),
    }


def test_what_lost_most_comes_first_and_what_is_new_last():
    now = {(1, "a"): [5, 10], (1, "b"): [1, 10], (1, "c"): [9, 10], (2, "d"): [1, 10]}
    before = {(1, "a"): [6, 10], (1, "b"): [6, 10], (1, "c"): [6, 10]}
    found = _compare_class_counts(now, before, {1}, False)
    assert [one.label for one in found] == ["b", "a", "c", "d"]
    assert [one.change for one in found] == [
        pytest.approx(-0.5),
        pytest.approx(-0.1),
        pytest.approx(0.3),
        None,
    ]
