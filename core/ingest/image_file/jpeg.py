"""Read the markers of a JPEG before it is decoded, and handle a missing end mark (ITU-T T.81, annex B)."""

from dataclasses import dataclass, field

from .unreadable import Unreadable

MAX_SCANS = 100
"""Scans of a JPEG (libtiff's own bound for those it holds): each passes over the whole image, and some 33 bytes
are one. Progressive files have about ten."""
MAX_COEFFICIENT_BYTES = 600 << 20
"""Most bytes of coefficients of a file in several scans, such as a progressive one, which its decoder holds whole:
200 megapixels with colours at half the resolution (4:2:0)."""
END = b"\xff\xd9"
_MAX_HEADER_STEPS, _MAX_STEPS = 1 << 14, 1 << 21
"""Bytes 0xFF that are looked at up to the first scan, and in the whole file."""
_START_OF_SCAN, _RESTARTS = 0xDA, 0xDD
_NO_LENGTH = frozenset((0x01, *range(0xD0, 0xD9)))
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))
_LOSSLESS = 0xC3
_DECODED = frozenset((0xC0, 0xC1, 0xC2, _LOSSLESS, 0xC9, 0xCA))
_JPEG_LS = 0xF7
_NOISE = (b"\xb6\xdb\x6d\xa9\x52\xca\x35\x9e" * 32, b"\x49\x24\x92\x56\xad\x35\xca\x61" * 32)
"""Two ends that have nothing in common, neither with each other nor with the zeros that a decoder puts there."""


@dataclass
class _Scan:
    """Contents of a scan: its components, and of each coefficient from `first` to `last` the bits above `low`."""

    components: tuple[int, ...]
    first: int
    last: int
    low: int


@dataclass
class Frame:
    """Properties of a JPEG that its markers state.

    bits: of a value; marker: of the frame, which says how it is coded; parts: id → blocks across and down that are
    coded of each unit, per component; scans: those whose headers were found; end: where the last scan's header ends.
    """

    marker: int
    bits: int
    width: int
    height: int
    parts: dict[int, tuple[int, int]]
    scans: list[_Scan] = field(default_factory=list)
    has_restarts: bool = False
    end: int = 0

    @property
    def coefficient_bytes(self) -> int:
        """Bytes that a decoder holds of a file in several scans."""
        wide, high = (max(part[i] for part in self.parts.values()) for i in (0, 1))
        units = -(-self.width // (8 * wide)) * -(-self.height // (8 * high))
        return sum(2 * 64 * units * a * b for a, b in self.parts.values())

    @property
    def is_whole(self) -> bool:
        """True where the scans bring every bit of every coefficient."""
        if self.marker not in _PROGRESSIVE:
            return {c for scan in self.scans for c in scan.components} == set(self.parts)
        low: dict[tuple[int, int], int] = {}
        for scan in self.scans:
            low |= {(c, k): scan.low for c in scan.components for k in range(scan.first, scan.last + 1)}
        return all(low.get((c, k)) == 0 for c in self.parts for k in range(64))


def check(data: bytes) -> bool:
    """Return whether a JPEG can be decoded at a reduced size.

    Raises Unreadable: it is a kind of JPEG that is not decoded here, or takes far more than its pixels excuse.
    """
    if data.count(b"\xff\xda") > MAX_SCANS:
        raise Unreadable(f"more than {MAX_SCANS} scans")
    frame = frame_of(data)
    if frame is None:
        return True  # its decoder says why
    if frame.marker in (_JPEG_LS, 0xC7, 0xCB, 0xCF):
        raise Unreadable("a lossless JPEG of a kind that is not read; save it as PNG or as a usual JPEG")
    if frame.marker not in _DECODED:
        raise Unreadable("a hierarchical JPEG; save it as a usual JPEG")
    if frame.bits != 8:
        raise Unreadable(f"a JPEG of {frame.bits} bits a value; save it with 8 bits, or as PNG")
    several = frame.marker in _PROGRESSIVE or (
        frame.scans and set(frame.scans[0].components) != set(frame.parts)
    )
    if several and frame.coefficient_bytes > MAX_COEFFICIENT_BYTES:
        raise Unreadable(
            f"a progressive JPEG of {frame.width}×{frame.height} pixels takes too much memory; save it as baseline"
        )
    return frame.marker != _LOSSLESS


def frame_of(data: bytes, *, every_scan: bool = False) -> Frame | None:
    """Read the markers up to the first scan, or those of every scan; None where they make no sense."""
    at, frame, restarts, steps = 2, None, False, 0
    most = _MAX_STEPS if every_scan else _MAX_HEADER_STEPS
    while (at := data.find(b"\xff", at)) >= 0 and at + 4 <= len(data) and steps < most:
        steps += 1
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker == 0 or marker in _NO_LENGTH:
            at += 2
            continue
        if marker == 0xD9:
            break
        body = data[at + 4 : at + 2 + int.from_bytes(data[at + 2 : at + 4])]
        at += 4 + len(body)
        if marker in _FRAMES or marker == _JPEG_LS:
            frame = _frame(marker, body)
        elif marker == _RESTARTS:
            restarts = any(body)
        elif marker == _START_OF_SCAN:
            if frame is None or not _scan(frame, body):
                break
            frame.end = at
            if not every_scan:
                break
    if frame is not None:
        frame.has_restarts = restarts
    return frame


def ended(data: bytes) -> tuple[bytes, ...]:
    """A file without its end mark, with one; nothing where it has one, or lacks coefficients as well.

    The further files have noise before the mark: where all give the same pixels, none of them is missing.
    """
    frame = frame_of(data, every_scan=True)
    if frame is None or not frame.end or data.find(END, frame.end) >= 0 or not frame.is_whole:
        return ()
    whole = data.removesuffix(b"\xff")
    ends = [b"", *_NOISE]
    if frame.has_restarts:  # after a restart interval a decoder passes over what stands before the next mark
        ends += [b"".join(bytes((0xFF, 0xD0 + i % 8)) + noise for i in range(16)) for noise in _NOISE]
    return tuple(whole + end + END for end in ends)


def _frame(marker: int, body: bytes) -> Frame | None:
    if len(body) < 6 or len(body) < 6 + 3 * body[5] or not body[5]:
        return None
    parts = {body[at]: (body[at + 1] >> 4, body[at + 1] & 15) for at in range(6, 6 + 3 * body[5], 3)}
    if not all(a and b for a, b in parts.values()):
        return None
    height, width = int.from_bytes(body[1:3]), int.from_bytes(body[3:5])
    return Frame(marker, body[0], width, height, parts)


def _scan(frame: Frame, body: bytes) -> bool:
    """Add a scan to its frame; False where its header makes no sense."""
    if not body or len(body) < 4 + 2 * body[0]:
        return False
    components = tuple(body[1 + 2 * i] for i in range(body[0]))
    first, last, bits = body[1 + 2 * body[0] :][:3]
    frame.scans.append(_Scan(components, first, last, bits & 15))
    return set(components) <= set(frame.parts)
