"""Names that look alike are found, those of different things are not, and many names take little
work.
"""

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tasks.class_names import (
    MAX_EDITED,
    MIN_EDITED,
    MIN_SLIPPED,
    ComparedClassNames,
    collapse_double_letters,
    compare_class_names,
    list_possible_singular_names,
    normalise_class_name_spelling,
    strip_plural_s,
)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("tshirt", "t-shirt"),
        ("T-Shirt", "t-shirt"),
        ("t shirt", "t-shirt"),
        ("T_SHIRTS", "t-shirt"),
        ("pant", "pants"),
        ("Pants", "pants"),
        ("dresses", "dress"),
        ("shoe", "shoes"),
        ("Ｈａｔ", "hat"),
        ("cafe", "café"),
        ("cafe\u0301", "café "),
        ("STRASSE", "straße"),
        ("class 1", "class_1"),
        ("class1", "class_1"),
        ("sneeker", "sneaker"),
        ("snaeker", "sneaker"),
        ("sneakr", "sneakers"),
        ("sneakker", "sneaker"),
        ("pull\u2011over", "pullover"),
        ("dgo", "dog"),
        ("catt", "cat"),
        ("rabit", "rabbit"),
        ("brids", "birds"),
    ],
)
def test_a_slip_of_the_pen_looks_like_the_known_name(name: str, known: str) -> None:
    assert compare_class_names([name], [known]) == ComparedClassNames([name], [], [(name, known)])


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("1", "7"),
        ("10", "100"),
        ("01", "1"),
        ("-1", "1"),
        ("1-2", "12"),
        ("class_1", "class_2"),
        ("class_12", "class_21"),
        ("version1", "version10"),
        ("version1", "version"),
        ("hat", "cat"),
        ("skirt", "shirt"),
        ("carrot", "parrot"),
        ("shirt", "t-shirt"),
        ("as", "a"),
        ("1s", "1"),
        ("カラス", "ガラス"),
        ("C", "C++"),
        ("fork", "spoon"),
        ("act", "cat"),
        ("cat", "cut"),
        ("bee", "be"),
        ("a12", "a21"),
        ("heat", "hat"),
    ],
)
def test_names_of_two_things_do_not_look_alike(name: str, known: str) -> None:
    assert compare_class_names([name], [known]).look_alike == []
    assert compare_class_names([known], [name]).look_alike == []


def test_two_names_within_one_batch_look_alike() -> None:
    assert compare_class_names(["hat", "Hat", "cap"], []) == ComparedClassNames(
        ["Hat", "cap", "hat"], [], [("hat", "Hat")]
    )


def test_a_known_name_is_never_doubted() -> None:
    assert compare_class_names(["hat", "Hat"], ["Hat", "hat"]) == ComparedClassNames(
        [], ["Hat", "hat"], []
    )


def test_a_new_name_is_compared_with_known_ones_first() -> None:
    assert compare_class_names(["HAT", "Hat"], ["hat"]).look_alike == [
        ("HAT", "hat"),
        ("Hat", "hat"),
    ]


def is_one_edit_away(a: str, b: str) -> bool:
    """Tell by a slow, obvious rule whether two names are one edit apart.
    An edit adds, removes or changes a letter or swaps two; not the first, and no digit.
    """
    if a == b or a[:1] != b[:1]:
        return False
    if [c for c in a if c.isdigit()] != [c for c in b if c.isdigit()]:
        return False
    for i in range(1, len(a)):
        if a[:i] + a[i + 1 :] == b:
            return True
        if len(a) == len(b) and a[:i] == b[:i] and a[i + 1 :] == b[i + 1 :]:
            return not a[i].isdigit() and not b[i].isdigit()
        swapped = a[: i - 1] + a[i] + a[i - 1] + a[i + 1 :]
        if i > 1 and swapped == b and not (a[i].isdigit() or a[i - 1].isdigit()):
            return True
    return any(b[:i] + b[i + 1 :] == a for i in range(1, len(b)))


def is_alike(a: str, b: str) -> bool:
    fold_a, fold_b = normalise_class_name_spelling(a), normalise_class_name_spelling(b)
    if set(list_possible_singular_names(fold_a)) & set(list_possible_singular_names(fold_b)):
        return True
    one, other = strip_plural_s(fold_a), strip_plural_s(fold_b)
    if not all(MIN_SLIPPED <= len(word) <= MAX_EDITED for word in (one, other)):
        return False
    if len(collapse_double_letters(one)) >= MIN_SLIPPED and collapse_double_letters(
        one
    ) == collapse_double_letters(other):
        return True
    if is_one_edit_away(one, other) and len(one) == len(other) and sorted(one) == sorted(other):
        return True  # with the same letters, the one edit is a swap
    if not all(MIN_EDITED <= len(word) <= MAX_EDITED for word in (one, other)):
        return False
    return is_one_edit_away(one, other)


NAMES = st.one_of(
    st.text("abs1", min_size=1, max_size=9),
    st.text("aAsé-_ 12ß", min_size=1, max_size=8),
    st.builds(lambda tail: "pullov" + tail, st.text("ers1-", max_size=4)),
    st.text(min_size=1, max_size=12),
)


@given(st.lists(NAMES, max_size=8), st.lists(NAMES, max_size=8))
def test_what_is_found_is_what_comparing_each_with_each_finds(
    batch: list[str], known: list[str]
) -> None:
    found = compare_class_names(batch, known)
    assert found.new == sorted(set(batch) - set(known)) and found.existing == sorted(
        set(batch) & set(known)
    )
    like = dict(found.look_alike)
    for at, name in enumerate(found.new):
        candidates = [
            other for other in [*sorted(set(known)), *found.new[:at]] if is_alike(name, other)
        ]
        assert (name in like) == bool(candidates), (name, candidates)
        assert name not in like or like[name] in candidates
        if any(other in known for other in candidates) and any(
            set(list_possible_singular_names(normalise_class_name_spelling(name)))
            & set(list_possible_singular_names(normalise_class_name_spelling(other)))
            for other in known
        ):
            assert like[name] in known


@given(NAMES, NAMES)
def test_names_that_differ_in_digits_are_never_alike(a: str, b: str) -> None:
    digits = [[c for c in normalise_class_name_spelling(name) if c.isdigit()] for name in (a, b)]
    if a != b and digits[0] != digits[1]:
        assert compare_class_names([a], [b]).look_alike == []


def count_lines_run(work: Callable[[], object]) -> int:
    """Count the lines of Python that some work runs: its cost, however fast the machine is."""
    count = 0

    def count_traced_line(_frame: object, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return count_traced_line

    before = sys.gettrace()
    sys.settrace(count_traced_line)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def list_distinct_names(prefix: str, tail: str, count: int) -> list[str]:
    letters = "abcdefghij"
    return [
        f"{prefix}{''.join(letters[int(c)] for c in f'{n:05d}') * 5}{tail}" for n in range(count)
    ]


@pytest.mark.parametrize(
    "names",
    [
        lambda count: (
            list_distinct_names("batch-", "", count),
            list_distinct_names("known-", "", count),
        ),
        lambda count: (
            list_distinct_names("batch-", "s", count),
            list_distinct_names("known-", "s", count),
        ),
        lambda count: (["pullover" + chr(0x4E00 + n) for n in range(count)], []),
    ],
    ids=["distinct", "distinct plurals", "all alike"],
)
def test_the_work_grows_with_the_names_and_not_with_their_pairs(
    names: Callable[[int], Any],
) -> None:
    few, many = (
        count_lines_run(lambda count=count: compare_class_names(*names(count)))
        for count in (50, 400)
    )  # type: ignore[misc]
    assert many < 2 * 8 * few


def test_a_thousand_names_beside_a_thousand_take_some_megabytes() -> None:
    batch, known = list_distinct_names("batch-", "", 1000), list_distinct_names("known-", "", 1000)
    tracemalloc.start()
    assert len(compare_class_names(batch, known).new) == 1000
    assert tracemalloc.get_traced_memory()[1] < 30 << 20
    tracemalloc.stop()
