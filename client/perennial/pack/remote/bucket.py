"""Images of a bucket, read like a folder on disk."""

from collections.abc import Collection

from perennial.pack.bad import MAX_BAD
from perennial.pack.errors import PackError
from perennial.pack.images import BatchImageEntry
from perennial.pack.names import (
    build_sortable_numbered_name,
    explain_invalid_path,
    normalise_to_nfc,
)
from perennial.pack.remote.address import BucketAddress, parse_bucket_address
from perennial.pack.remote.fetching import (
    MAX_ENTRIES,
    MAX_ENTRY_BYTES,
    Progress,
    RemoteImageChanged,
    RemoteImageSource,
    require_positive_limit,
)
from perennial.pack.remote.names import is_safe_file_name
from perennial.pack.remote.stores import ListedObject, StoreOptions, open_remote_bucket
from perennial.pack.sources.csv_file import parse_reading_options_of_caller
from perennial.pack.sources.folder import (
    are_classes_derivable_from_names,
    assign_classes_and_parts_in_folder,
    describe_warnings_of_reading_plan,
)
from perennial.pack.text import format_count_with_noun, quote_name
from perennial.reading_rules.entries import BatchReadingOptions, UnreadableBatchError
from perennial.reading_rules.plan import IGNORED, FileClassesAndParts
from perennial.reading_rules.tables import MAX_TABLE_BYTES

_MOST_PAGES = 5000
"""Maximum number of pages in a listing, since pages may be empty."""


class BucketImages(RemoteImageSource):
    """The labelled images below a prefix of a cloud storage bucket, ordered by key."""

    def __init__(
        self,
        address: str,
        *,
        endpoint: str = "",
        profile: str = "",
        anonymous: bool = False,
        layout: str = "auto",
        one_class: bool = False,
        classes: str = "",
        image: str = "",
        label: str = "",
        table: str = "",
        names_pattern: str = "",
        known_classes: Collection[str] = (),
        max_entries: int = MAX_ENTRIES,
        max_bad: float = MAX_BAD,
        progress: Progress | None = None,
    ) -> None:
        """List the bucket, reading only label tables.

        Args:
            endpoint: URL of another service with the same protocol (s3, gs).
            profile: profile of the AWS configuration (s3).
            anonymous: access without credentials.
            layout, one_class, classes, image, label, table, names_pattern, known_classes: as for a
                folder, see `perennial.pack.sources.folder`.
            max_entries: maximum number of keys.
            max_bad: largest allowed share of bad objects.
            progress: called with the number of listed keys.

        Raises:
            PackError: the bucket cannot be listed, has more keys, or has no labelled images.
            Undecided: one of the options is needed.
            ExtraMissing: a library is needed.
        """
        self._address: BucketAddress = parse_bucket_address(address)
        require_positive_limit(max_entries)
        super().__init__(f"{quote_name(str(self._address))}", max_bad)
        self._store = open_remote_bucket(self._address, StoreOptions(endpoint, profile, anonymous))
        self._objects: list[ListedObject] = []
        layout_options = {
            "layout": layout,
            "one_class": one_class,
            "classes": classes,
            "max_bad": max_bad,
        }
        options = parse_reading_options_of_caller(
            {
                **layout_options,
                "image": image,
                "label": label,
                "table": table,
                "names_pattern": names_pattern,
            }
        )
        object_by_name = self._list_objects(max_entries, progress)
        # Stores list keys in different orders, and the bytes of the batch follow this one.
        names = sorted(object_by_name)
        plan = self._plan_classes_of_bucket_objects(names, object_by_name, options, known_classes)
        for name, number, is_test in zip(names, plan.of, plan.test, strict=True):
            if number != IGNORED:
                self._add_listed_object(
                    name,
                    object_by_name[name],
                    plan.classes[number],
                    ("test" if is_test else "train") if plan.has_parts else "",
                )
        self.listed = not are_classes_derivable_from_names(plan, self.rows)
        self._said = describe_warnings_of_reading_plan(plan, self.listed)
        self.check_bad_share_and_update_warnings()

    def _plan_classes_of_bucket_objects(
        self,
        names: list[str],
        object_by_name: dict[str, ListedObject],
        options: BatchReadingOptions,
        known_classes: Collection[str],
    ) -> FileClassesAndParts:
        def read_object_by_number(number: int) -> bytes:
            table = object_by_name[names[number]]
            # By the listing, before a byte of it is fetched.
            if table.size > MAX_TABLE_BYTES:
                raise UnreadableBatchError(
                    f"The object {quote_name(table.key)} is larger than {MAX_TABLE_BYTES:,} bytes.",
                    "too_large",
                )
            try:
                return self._store.read_object(table)
            except RemoteImageChanged as changed:
                raise UnreadableBatchError(
                    f"The object {quote_name(table.key)} {changed}."
                ) from changed

        return assign_classes_and_parts_in_folder(
            names, options, read_object_by_number, known_classes, self.origin
        )

    def _add_listed_object(self, name: str, listed: ListedObject, label: str, part: str) -> None:
        size = listed.size
        if not 0 < size <= MAX_ENTRY_BYTES:
            self._bad.record_bad_entry(
                f"The object {quote_name(listed.key)}",
                f"has {size:,} bytes; an image has 1 to {MAX_ENTRY_BYTES:,}",
            )
            return
        self._objects.append(listed)
        self._sizes.append(size)
        folder, _, base = name.rpartition("/")
        # Keys may hold what some file systems do not take, such as a colon or a final dot.
        if not is_safe_file_name(base):
            name = f"{folder}/{build_sortable_numbered_name(len(self.rows))}".removeprefix("/")
        self.rows.append(BatchImageEntry(name, label, part))

    def _list_objects(self, max_entries: int, progress: Progress | None) -> dict[str, ListedObject]:
        """List the bucket's objects by their names in the batch; invalid names are bad entries."""
        object_by_name: dict[str, ListedObject] = {}
        keys = 0
        for number, page in enumerate(self._store.list_object_pages()):
            keys += len(page)
            # Checked for each page, before a huge bucket fills the memory.
            if keys > max_entries or number > _MOST_PAGES:
                raise PackError(
                    f"{self.origin} has more than {format_count_with_noun(max_entries, 'key')}. Name a "
                    f"longer prefix and send it in "
                    f"several batches, or raise the limit with -o max_entries={max_entries * 2}."
                )
            for listed in page:
                self._add_object_by_name_or_as_bad_entry(listed, object_by_name)
            if progress is not None:
                progress(keys, 0)
        if not object_by_name:
            problem = (
                "no object that can be sent" if keys else "no objects; is the prefix a folder?"
            )
            raise PackError(f"{self.origin} has {problem}")
        return object_by_name

    def _add_object_by_name_or_as_bad_entry(
        self, listed: ListedObject, object_by_name: dict[str, ListedObject]
    ) -> None:
        prefix = self._address.prefix
        name = listed.key.removeprefix(prefix)
        if name.endswith("/") and not listed.size:
            return  # a folder marker, as consoles create it
        where = f"The object {quote_name(listed.key)}"
        wrong = explain_invalid_path(name)
        if not listed.key.startswith(prefix):
            self._bad.record_bad_entry(where, "is not below the prefix")
        elif wrong or any(part in ("", ".", "..") for part in name.split("/")):
            self._bad.record_bad_entry(where, wrong or "has an empty part, or “.”, in its key")
        # Keys may differ in Unicode composition alone, and the service would see one name twice.
        elif normalise_to_nfc(name) in object_by_name:
            self._bad.record_bad_entry(where, "is listed twice")
        else:
            object_by_name[normalise_to_nfc(name)] = listed

    def fetch_image(self, number: int) -> bytes:
        """Fetch an image of the bucket by its number."""
        return self._store.read_object(self._objects[number])

    def describe_image_place(self, number: int) -> str:
        """Name the bucket's object of an image by its number, for messages."""
        return f"The object {quote_name(self._objects[number].key)}"

    def get_image_change_marker(self, number: int) -> str:
        """Return the ETag or generation of an image's object, which changes when it is replaced."""
        return self._objects[number].version
