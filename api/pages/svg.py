"""Small drawings that are part of a page: the line of a model's accuracy, the tree of its versions,
and how probabilities and right answers agree.

What is drawn is numbers alone; colours and strokes are in app.css.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.protocol.answers.manifest import CalibrationBin, CoveragePoint
from core.requests.lineage import Move, VersionRow

WIDTH, HEIGHT = 120, 28
"""Of a sparkline, in pixels."""
LEAST = 0.1
"""The smallest range that a sparkline shows from its foot to its top."""
STEP, LANE = 44, 34
"""Between two versions, and between two lanes, in pixels."""
_MARGIN = 26


SQUARE = 200
"""Of a reliability diagram, in pixels each way."""


def sparkline(values: Sequence[float]) -> str:
    """The points of a polyline in `WIDTH` × `HEIGHT`, which shows `LEAST` at least: a small fall looks small."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    rise = max(high - low, LEAST)
    foot = (high + low - rise) / 2
    step = (WIDTH - 6) / (len(values) - 1)
    places = (
        (3 + index * step, HEIGHT - 4 - (value - foot) / rise * (HEIGHT - 8))
        for index, value in enumerate(values)
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


@dataclass(frozen=True)
class Node:
    """A version in the tree."""

    version: VersionRow
    x: float
    y: float


@dataclass(frozen=True)
class Tree:
    """The tree of a window of versions. `edges`: SVG paths from parents; `moves`: paths of production."""

    width: int
    height: int
    track: int
    nodes: list[Node]
    edges: list[str]
    moves: list[tuple[str, Move]]


def tree(versions: Sequence[VersionRow], moves: Iterable[Move]) -> Tree:
    """The tree: x is the version; of several children the newest that was not held stays in its lane.

    Args:
        versions: newest first.
        moves: of production, newest first.
    """
    ordered = list(reversed(versions))
    lanes = _lanes(ordered)
    place = {
        one.number: (_MARGIN + index * STEP, _MARGIN + lanes[one.number] * LANE)
        for index, one in enumerate(ordered)
    }
    nodes = [Node(one, *place[one.number]) for one in ordered]
    edges = [
        _edge(place[one.parent], place[one.number])
        for one in ordered
        if one.parent is not None and one.parent in place
    ]
    track = _MARGIN + (max(lanes.values(), default=0) + 1) * LANE + 6
    arcs = [
        (_arc(place[move.previous][0], place[move.version][0], track), move)
        for move in reversed(list(moves))
        if move.previous in place and move.version in place and move.previous != move.version
    ]
    width = 2 * _MARGIN + max(0, len(ordered) - 1) * STEP
    return Tree(width, track + 34, track, nodes, edges, arcs)


def _lanes(ordered: Sequence[VersionRow]) -> dict[int, int]:
    """Version → its lane, 0 for the first."""
    heirs: dict[int | None, VersionRow] = {}
    for one in ordered:
        before = heirs.get(one.parent)
        if before is None or (one.status != "held", one.number) >= (before.status != "held", before.number):
            heirs[one.parent] = one
    lanes: dict[int, int] = {}
    ends: dict[int, int] = {}  # lane → where in `ordered` it ends so far
    place = {one.number: index for index, one in enumerate(ordered)}
    for index, one in enumerate(ordered):
        above = lanes.get(-1 if one.parent is None else one.parent)
        begins = place.get(-1 if one.parent is None else one.parent, index)
        if above is not None and heirs[one.parent] is one:
            lane = above
        else:
            free = (lane for lane in range(len(ordered)) if ends.get(lane, -1) < max(begins, 0))
            lane = next(lane for lane in free if lane != above)
        lanes[one.number] = lane
        ends[lane] = index
    return lanes


def _edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x, y), (to_x, to_y) = start, end
    if y == to_y:
        return f"M{x:g} {y:g}H{to_x:g}"
    return f"M{x:g} {y:g}C{x + STEP / 2:g} {y:g} {to_x - STEP / 2:g} {to_y:g} {to_x:g} {to_y:g}"


def _arc(start: float, end: float, y: float) -> str:
    """A move along the track of production: forward straight, back by an arc below."""
    if end > start:
        return f"M{start:g} {y:g}H{end:g}"
    deep = min(26, 10 + (start - end) / 12)
    return f"M{start:g} {y:g}C{start:g} {y + deep:g} {end:g} {y + deep:g} {end:g} {y:g}"


@dataclass(frozen=True)
class Bar:
    """A bin of a reliability diagram: where its point is, and from where to where its 95 % interval reaches."""

    x: float
    y: float
    top: float
    bottom: float
    images: int
    probability: float
    right: float


def reliability(bins: Iterable[CalibrationBin]) -> list[Bar]:
    """The points of a reliability diagram in `SQUARE` pixels each way: share of right answers over probability."""
    found = []
    for one in bins:
        low, high = _wilson(one["right"], one["images"])
        share, x = one["right"] / one["images"], SQUARE * one["probability"]
        y, top, bottom = (SQUARE * (1 - value) for value in (share, high, low))
        found.append(Bar(x, y, top, bottom, one["images"], one["probability"], share))
    return found


def coverage(curve: Iterable[CoveragePoint]) -> str:
    """The points of a polyline in `SQUARE` pixels each way: precision, from one half up, over the share of images."""
    found = list(curve)
    images = found[-1]["images"] if found else 1
    places = (
        (SQUARE * one["images"] / images, SQUARE * min(1.0, 2 * (1 - one["right"] / one["images"])))
        for one in found
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _wilson(right: int, images: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    z = 1.96
    share, wide = right / images, 1 + z * z / images
    middle = (share + z * z / (2 * images)) / wide
    half = z / wide * math.sqrt(share * (1 - share) / images + z * z / (4 * images * images))
    return max(0.0, middle - half), min(1.0, middle + half)
