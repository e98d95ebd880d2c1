"""Small SVG drawings in pages: a sparkline of accuracy, the tree of versions, reliability and
coverage.

Only coordinates are computed here; colours and strokes are in app.css.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.contract.responses.versions.manifest import CalibrationBin, CoveragePoint
from core.versions.history import ProductionMove, VersionSummaryRow

WIDTH, HEIGHT = 120, 28
"""Size of a sparkline in pixels."""
LEAST = 0.1
"""Smallest range of values that a sparkline spans, so that small changes look small."""
STEP, LANE = 44, 34
"""Pixels between two versions, and between two lanes."""
_MARGIN = 26


SQUARE = 200
"""Width and height of a reliability diagram in pixels."""


def compute_sparkline_points(values: Sequence[float]) -> str:
    """Return the points of a small line chart for an SVG polyline."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    # Equal values would otherwise divide by zero, and tiny changes fill the height.
    rise = max(high - low, LEAST)
    foot = (high + low - rise) / 2
    step = (WIDTH - 6) / (len(values) - 1)
    places = (
        (3 + index * step, HEIGHT - 4 - (value - foot) / rise * (HEIGHT - 8))
        for index, value in enumerate(values)
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


@dataclass(frozen=True)
class VersionTreeNode:
    """A version's node in the drawn version tree, with its position."""

    version: VersionSummaryRow
    x: float
    y: float


@dataclass(frozen=True)
class VersionTree:
    """Layout of the version tree: nodes, SVG paths of the edges, and `moves` of production."""

    width: int
    height: int
    track: int
    nodes: list[VersionTreeNode]
    edges: list[str]
    moves: list[tuple[str, ProductionMove]]


def lay_out_version_tree(
    versions: Sequence[VersionSummaryRow], moves: Iterable[ProductionMove]
) -> VersionTree:
    """Lay out the version tree for SVG, with one version per step on the x axis.

    Of several children, the newest one that was not held stays in its parent's lane.

    Args:
        versions: newest first.
        moves: moves of production, newest first.
    """
    # Oldest first, so that a parent has its lane before its children.
    ordered = list(reversed(versions))
    lanes = _assign_version_tree_lanes(ordered)
    positions = {
        one.number: (_MARGIN + index * STEP, _MARGIN + lanes[one.number] * LANE)
        for index, one in enumerate(ordered)
    }
    nodes = [VersionTreeNode(one, *positions[one.number]) for one in ordered]
    # A long list does not begin with the first version, so some parents are not drawn.
    edges = [
        _build_tree_edge_path(positions[one.parent], positions[one.number])
        for one in ordered
        if one.parent is not None and one.parent in positions
    ]
    track = _MARGIN + (max(lanes.values(), default=0) + 1) * LANE + 6
    # Oldest first, since SVG paints later arcs over earlier ones.
    arcs = [
        (
            _build_production_move_svg_path(
                positions[move.previous][0], positions[move.version][0], track
            ),
            move,
        )
        for move in reversed(list(moves))
        if move.previous in positions
        and move.version in positions
        and move.previous != move.version
    ]
    width = 2 * _MARGIN + max(0, len(ordered) - 1) * STEP
    return VersionTree(width, track + 34, track, nodes, edges, arcs)


def _assign_version_tree_lanes(ordered: Sequence[VersionSummaryRow]) -> dict[int, int]:
    """Assign each version its row (lane) in the drawn tree, 0 for the first."""
    heirs: dict[int | None, VersionSummaryRow] = {}
    for one in ordered:
        heir = heirs.get(one.parent)
        if heir is None or (one.status != "held", one.number) >= (
            heir.status != "held",
            heir.number,
        ):
            heirs[one.parent] = one
    lanes: dict[int, int] = {}
    ends: dict[int, int] = {}  # lane → where in `ordered` it ends so far
    index_by_number = {one.number: index for index, one in enumerate(ordered)}
    for index, one in enumerate(ordered):
        above = lanes.get(-1 if one.parent is None else one.parent)
        begins = index_by_number.get(-1 if one.parent is None else one.parent, index)
        if above is not None and heirs[one.parent] is one:
            lane = above
        else:
            # A lane is free again once its last version lies before the branch.
            free = (lane for lane in range(len(ordered)) if ends.get(lane, -1) < max(begins, 0))
            lane = next(lane for lane in free if lane != above)
        lanes[one.number] = lane
        ends[lane] = index
    return lanes


def _build_tree_edge_path(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x, y), (to_x, to_y) = start, end
    if y == to_y:
        return f"M{x:g} {y:g}H{to_x:g}"
    return f"M{x:g} {y:g}C{x + STEP / 2:g} {y:g} {to_x - STEP / 2:g} {to_y:g} {to_x:g} {to_y:g}"


def _build_production_move_svg_path(start: float, end: float, y: float) -> str:
    """Return the SVG path of a move of production: straight if forward, an arc below if back."""
    if end > start:
        return f"M{start:g} {y:g}H{end:g}"
    deep = min(26, 10 + (start - end) / 12)
    return f"M{start:g} {y:g}C{start:g} {y + deep:g} {end:g} {y + deep:g} {end:g} {y:g}"


@dataclass(frozen=True)
class ReliabilityDiagramPoint:
    """A bin of a reliability diagram: the position of its point and of its 95 % interval."""

    x: float
    y: float
    top: float
    bottom: float
    images: int
    probability: float
    right: float


def lay_out_reliability_diagram(bins: Iterable[CalibrationBin]) -> list[ReliabilityDiagramPoint]:
    """Return the bins of a reliability diagram as positions in a square of `SQUARE` pixels.

    They show the share of correct predictions over the mean probability of each bin.
    """
    bars = []
    for one in bins:
        # Wilson's interval also holds for few images, and where all or none of them are right.
        low, high = _compute_wilson_interval(one["right"], one["images"])
        share, x = one["right"] / one["images"], SQUARE * one["probability"]
        y, top, bottom = (SQUARE * (1 - value) for value in (share, high, low))
        bars.append(
            ReliabilityDiagramPoint(x, y, top, bottom, one["images"], one["probability"], share)
        )
    return bars


def format_precision_coverage_svg_points(curve: Iterable[CoveragePoint]) -> str:
    """Return the points of a precision-coverage curve for an SVG polyline.

    They show precision, from one half up, over the share of images.
    """
    points = list(curve)
    images = points[-1]["images"] if points else 1
    places = (
        (SQUARE * one["images"] / images, SQUARE * min(1.0, 2 * (1 - one["right"] / one["images"])))
        for one in points
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _compute_wilson_interval(right: int, images: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share (Wilson 1927)."""
    z = 1.96
    share, wide = right / images, 1 + z * z / images
    middle = (share + z * z / (2 * images)) / wide
    half = z / wide * math.sqrt(share * (1 - share) / images + z * z / (4 * images * images))
    return max(0.0, middle - half), min(1.0, middle + half)
