"""A list of `https://` URLs and labels, `url,label[,split]`, whose images are fetched while
sending.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from perennial.pack import parts
from perennial.pack.bad import MAX_BAD
from perennial.pack.errors import PackError
from perennial.pack.images import BatchImageEntry
from perennial.pack.labels import convert_label_to_stripped_nfc
from perennial.pack.names import build_sortable_numbered_name
from perennial.pack.remote.fetching import (
    AT_ONCE,
    MAX_ENTRIES,
    Progress,
    RemoteImageChanged,
    RemoteImageSource,
    require_positive_limit,
)
from perennial.pack.remote.https import ImageFetcher, UnusableUrl, parse_https_url
from perennial.pack.remote.names import is_safe_file_name
from perennial.pack.remote.url_list import FORM, UNKNOWN_PART, UrlListRow, iterate_url_list_rows
from perennial.pack.text import format_count_with_noun, quote_name

MAX_IMAGE_BYTES = 256 << 20
_TRIES = 3
_PAUSE_S = 0.5
_SAID = "sha256:"
# pandas writes a missing text as nan; -1 is the usual number of no class.
_NO_LABELS = ("", "nan", "-1")
_T = TypeVar("_T")


class _UrlImageSizeAndVersion(NamedTuple):
    """Size and version (ETag, time or digest) of an image found at a URL."""

    row: UrlListRow
    size: int
    version: str


class UrlImages(RemoteImageSource):
    """Labelled images at the https URLs of a list, in its order."""

    def __init__(
        self,
        file: Path,
        *,
        allow_private: bool = False,
        max_entries: int = MAX_ENTRIES,
        max_bad: float = MAX_BAD,
        progress: Progress | None = None,
        fetcher: ImageFetcher | None = None,
    ) -> None:
        """Read the list, and request the size of each image.

        Args:
            allow_private: URLs may lead to private addresses.
            max_entries: maximum number of lines.
            max_bad: largest allowed share of bad lines.
            progress: called with the number of images requested so far, and the total.
            fetcher: fetches the URLs; None: a new Fetcher.

        Raises:
            PackError: the file is not such a list, or too many lines are bad.
        """
        super().__init__(f"the list {quote_name(file.name)}", max_bad)
        require_positive_limit(max_entries)
        self._fetcher = fetcher or ImageFetcher(allow_private)
        self._found: list[_UrlImageSizeAndVersion] = []
        rows = self._read_url_rows(file, max_entries)
        as_taken = parts.map_dataset_parts_to_splits((row.part for row in rows), quote_name(file))
        for image in self._probe_remote_images(rows, progress):
            self._found.append(image)
            self._sizes.append(image.size)
            # Without the query, which names no file and may hold a signature.
            tail = image.row.url.partition("?")[0].rpartition("/")[2]
            name = build_sortable_numbered_name(
                len(self.rows), tail if tail and is_safe_file_name(tail) else ""
            )
            self.rows.append(
                BatchImageEntry(
                    name, convert_label_to_stripped_nfc(image.row.label), as_taken[image.row.part]
                )
            )
        self.check_bad_share_and_update_warnings()

    def _read_url_rows(self, file: Path, max_entries: int) -> list[UrlListRow]:
        """Read a URL list's rows, each URL once and with one label. Raises PackError."""
        rows: dict[str, UrlListRow] = {}
        urls: set[str] = set()
        unlabelled = repeated = 0
        for row in iterate_url_list_rows(file):
            if len(urls) >= max_entries:
                raise PackError(
                    f"{quote_name(file)} has more than {format_count_with_noun(max_entries, 'line')}. Send "
                    f"it in several batches, or raise "
                    f"the limit with -o max_entries={max_entries * 2}."
                )
            try:
                parse_https_url(row.url)
            except UnusableUrl as error:
                self._bad.record_bad_entry(row.where, f"names {quote_name(row.url)}, which {error}")
                continue
            if row.url in urls:
                first = rows.get(row.url)
                if first is not None and (first.label, first.part) == (row.label, row.part):
                    repeated += 1
                    continue
                self._bad.record_bad_entry(
                    row.where, f"names {quote_name(row.url)}, which the list has named already"
                )
                # Nothing shows which of two labels is right, so neither line is used.
                if first is not None:
                    self._bad.record_bad_entry(
                        first.where,
                        f"names {quote_name(row.url)}, of which {row.where} says something else",
                    )
                    del rows[row.url]
            elif row.part == UNKNOWN_PART:
                self._bad.record_bad_entry(
                    row.where, "has a split that is not train, test, validation or empty"
                )
            elif row.label.strip().lower() in _NO_LABELS:
                unlabelled += 1
            else:
                rows[row.url] = row
            urls.add(row.url)
        if unlabelled:
            self._said.append(
                f"{format_count_with_noun(unlabelled, 'line')} without a label left out."
            )
        if repeated:
            self._said.append(
                f"{format_count_with_noun(repeated, 'line')} left out, which repeat others."
            )
        if not rows:
            self._bad.check_bad_share_and_build_warning(0)
            raise PackError(f"{quote_name(file)} lists no images: {FORM}.")
        return list(rows.values())

    def _probe_remote_images(
        self, rows: list[UrlListRow], progress: Progress | None
    ) -> Iterator[_UrlImageSizeAndVersion]:
        """Request the size and version of each image of a URL list; unavailable ones are bad
        entries.
        """
        with ThreadPoolExecutor(AT_ONCE, "perennial-ask") as pool:
            done = 0
            # In groups, because `map` would submit the whole list at once and hold all its results.
            for row_group in _split_rows_into_groups(rows):
                for row, result in zip(
                    row_group, pool.map(self._probe_remote_image, row_group), strict=True
                ):
                    done += 1
                    if isinstance(result, _UrlImageSizeAndVersion):
                        yield result
                    else:
                        self._bad.record_bad_entry(
                            row.where, f"names {quote_name(row.url)}, which {result}"
                        )
                if progress is not None:
                    progress(done, len(rows))

    def _probe_remote_image(self, row: UrlListRow) -> _UrlImageSizeAndVersion | UnusableUrl:
        try:
            try:
                head = _call_with_retries(lambda: self._fetcher.fetch_size_and_version(row.url))
            except UnusableUrl as error:
                if not str(error).startswith("answers with status 4"):
                    raise
                head = None  # some servers answer only GET
            if head is None or head.size is None:
                # Without a declared size, only reading the image tells it, and the digest is its
                # version.
                _, content = _call_with_retries(
                    lambda: self._fetcher.fetch_size_version_and_first_bytes(
                        row.url, MAX_IMAGE_BYTES + 1
                    )
                )
                size, version = len(content), _SAID + hashlib.sha256(content).hexdigest()
            else:
                size, version = head.size, head.version
        except UnusableUrl as error:
            return error
        if not 0 < size <= MAX_IMAGE_BYTES:
            more = "more than " if size > MAX_IMAGE_BYTES else ""
            return UnusableUrl(
                f"has {more}{min(size, MAX_IMAGE_BYTES):,} bytes; an image has 1 to "
                f"{MAX_IMAGE_BYTES:,}"
            )
        return _UrlImageSizeAndVersion(row, size, version)

    def fetch_image(self, number: int) -> bytes:
        """Fetch an image of the URL list by its number."""
        listed_image = self._found[number]
        try:
            # One byte more than listed reveals an image that has grown.
            head, content = _call_with_retries(
                lambda: self._fetcher.fetch_size_version_and_first_bytes(
                    listed_image.row.url, listed_image.size + 1
                )
            )
        except UnusableUrl as error:
            raise RemoteImageChanged(str(error)) from error
        if listed_image.version.startswith(_SAID):
            is_same = hashlib.sha256(content).hexdigest() == listed_image.version.removeprefix(
                _SAID
            )
        else:
            # A server that names no version leaves only the size to compare.
            is_same = (
                not head.version or not listed_image.version or head.version == listed_image.version
            )
        if not is_same:
            raise RemoteImageChanged("has been replaced since it was listed")
        return content

    def describe_image_place(self, number: int) -> str:
        """Name the line and URL of an image of the list, for messages."""
        row = self._found[number].row
        return f"{row.where}, {quote_name(row.url)},"

    def get_image_change_marker(self, number: int) -> str:
        """Return the ETag, time or digest of an image at a URL, which changes when it is replaced."""
        return self._found[number].version


def _split_rows_into_groups(rows: list[UrlListRow]) -> Iterator[list[UrlListRow]]:
    return (rows[at : at + 8 * AT_ONCE] for at in range(0, len(rows), 8 * AT_ONCE))


def _call_with_retries(ask: Callable[[], _T]) -> _T:
    """Call a request function, retrying after pauses if the failure may pass. Raises UnusableUrl."""
    for attempt in range(_TRIES - 1):
        try:
            return ask()
        except UnusableUrl as error:
            if not error.is_passing:
                raise
            time.sleep(_PAUSE_S * 2**attempt)
    return ask()
