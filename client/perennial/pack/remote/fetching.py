"""Images that are fetched one by one while they are sent, with some fetched ahead.

An image's name and size are sent in the tar before its bytes are requested. An image that has
changed since listing is therefore replaced by zeros of the same size. It is reported as bad here,
and the service rejects it as an image.
"""

import hashlib
from abc import abstractmethod
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from perennial.pack.bad import BadEntryCollector
from perennial.pack.errors import PackError, SourceChanged
from perennial.pack.images import ImageSource
from perennial.pack.text import quote_name

AT_ONCE = 8
"""Maximum number of parallel requests."""
MAX_AHEAD_BYTES = 64 << 20
"""Maximum bytes fetched ahead and not sent yet; a single entry may be larger."""
MAX_ENTRIES = 500_000
MAX_ENTRY_BYTES = 1 << 30
_ZEROS = 1 << 20
Progress = Callable[[int, int], None]
"""Called with the number of listed entries, and the total, or 0 if unknown."""


def require_positive_limit(max_entries: object) -> None:
    """Raise PackError unless the limit `max_entries` is a positive integer."""
    if isinstance(max_entries, bool) or not isinstance(max_entries, int) or max_entries < 1:
        raise PackError(
            f"max_entries is {quote_name(str(max_entries))}; it is a whole number such as "
            f"{MAX_ENTRIES}."
        )


class RemoteImageChanged(Exception):
    """A remote image has changed since it was listed; the message is the end of a sentence."""


class RemoteImageSource(ImageSource):
    """Base class of images that are fetched from a bucket or URLs while the batch is sent."""

    def __init__(self, origin: str, max_bad: float) -> None:
        super().__init__(origin)
        self._bad = BadEntryCollector(origin, max_bad)
        self._sizes = array("q")
        self._said: list[str] = []
        self._empty: set[int] = set()
        self._is_read = False

    @abstractmethod
    def fetch_image(self, number: int) -> bytes:
        """Fetch the bytes of a remote image. Raises RemoteImageChanged, or PackError to end the
        batch.
        """

    @abstractmethod
    def describe_image_place(self, number: int) -> str:
        """Describe where a remote image is, for messages."""

    @abstractmethod
    def get_image_change_marker(self, number: int) -> str:
        """Return a text that changes when a remote image is replaced, such as its ETag."""

    def identity(self) -> str:
        """Return a text that identifies the remote images also in a later run, without fetching
        them.
        """
        digest = hashlib.sha256()
        for number, row in enumerate(self.rows):
            digest.update(
                f"{row!r} {self.describe_image_place(number)!r} {self._sizes[number]} "
                f"{self.get_image_change_marker(number)!r}\n".encode()
            )
        return digest.hexdigest()

    def collect_image_byte_sizes(self) -> "array[int]":
        """Return the sizes of the remote images, as listed."""
        return self._sizes

    def iterate_image_contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """Fetch the remote images in order, with a few requested ahead, and yield their bytes.

        Raises:
            SourceChanged: an image has changed whose bytes were already sent.
        """
        ahead: deque[tuple[int, Future[bytes | RemoteImageChanged]]] = deque()
        waiting, following = 0, first
        with ThreadPoolExecutor(AT_ONCE, "perennial-fetch") as pool:
            try:
                while ahead or following < len(self.rows):
                    while following < len(self.rows) and len(ahead) < AT_ONCE:
                        # While nothing is ahead, an entry of any size is fetched: it would
                        # otherwise never be.
                        if ahead and waiting + self._sizes[following] > MAX_AHEAD_BYTES:
                            break
                        ahead.append((following, pool.submit(self._try_fetch_image, following)))
                        waiting += self._sizes[following]
                        following += 1
                    number, future = ahead.popleft()
                    fetched = future.result()
                    waiting -= self._sizes[number]
                    if isinstance(fetched, bytes):
                        yield (fetched,)
                    else:
                        # A stream that resumes at this image has perhaps sent its first bytes
                        # already.
                        yield self._replace_with_zeros(number, fetched, is_cut=number == first > 0)
            finally:
                # Closing the pool would otherwise wait for images that nobody needs any more.
                for _, future in ahead:
                    future.cancel()
        self._is_read |= first == 0

    def _try_fetch_image(self, number: int) -> bytes | RemoteImageChanged:
        # Once replaced by zeros, always: each reading must give the same bytes.
        if number in self._empty:
            return RemoteImageChanged("")
        try:
            content = self.fetch_image(number)
        except RemoteImageChanged as changed:
            return changed
        if len(content) == self._sizes[number]:
            return content
        has = "more" if len(content) > self._sizes[number] else f"{len(content):,}"
        return RemoteImageChanged(
            f"had {self._sizes[number]:,} bytes when it was listed, and now it has {has}"
        )

    def _replace_with_zeros(
        self, number: int, changed: RemoteImageChanged, is_cut: bool
    ) -> Iterable[bytes]:
        """Yield zeros in place of a changed remote image. Raises SourceChanged, or PackError."""
        if number not in self._empty:
            # After a whole reading the digest is known, and zeros would contradict it.
            if self._is_read or is_cut:
                raise SourceChanged(
                    f"{self.describe_image_place(number)} {changed}. Let it settle, and submit it again."
                )
            self._empty.add(number)
            self._bad.record_bad_entry(self.describe_image_place(number), str(changed))
            self.check_bad_share_and_update_warnings()
        remaining_bytes = self._sizes[number]
        while remaining_bytes > 0:
            yield bytes(min(remaining_bytes, _ZEROS))
            remaining_bytes -= _ZEROS

    def check_bad_share_and_update_warnings(self) -> None:
        """Update the warnings about remote images left out. Raises PackError if there are too many."""
        self.warnings[:] = [
            *self._bad.check_bad_share_and_build_warning(len(self.rows) - len(self._empty)),
            *self._said,
        ]
