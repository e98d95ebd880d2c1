"""A list of URLs: what is fetched, what is refused, and that hostile lists and servers cost no
batch.
"""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from photo_servers import (
    Page,
    Photos,
    drip_bytes,
    make_self_signed_certificate,
    run_photo_server,
    yield_endless_bytes,
)
from sources import make_noise_png, write_file

from perennial.pack import PackedBatch, PackError, SourceChanged, open_batch
from perennial.pack.kinds import detect_data_set_kind
from perennial.pack.remote import urls
from perennial.pack.remote.https import ImageFetcher, UnusableUrl
from perennial.pack.remote.urls import UrlImages


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_self_signed_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def photos(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Photos]:
    """A server of ten photos, /0.png to /9.png."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(urls, "_PAUSE_S", 0.0)
    with run_photo_server(certificate) as found:
        for number in range(10):
            found.pages[f"/{number}.png"] = Page(make_noise_png(str(number)), ETag=f'"{number}"')
        yield found


def write_photo_list(at: Path, photos: Photos, *more: str) -> Path:
    """Write a list of the ten photos, five of each class, and more lines."""
    lines = [f"{photos.url}/{number}.png,{'cat' if number % 2 else 'dog'}" for number in range(10)]
    write_file(at / "list.csv", "\n".join(["url,label", *lines, *more]).encode())
    return at / "list.csv"


def read_members(batch: PackedBatch) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(batch.read_chunks()))) as tar:
        return {m.name: file.read() for m in tar if (file := tar.extractfile(m))}


def test_a_list_becomes_the_batch_of_its_images(photos: Photos, tmp_path: Path) -> None:
    file = write_photo_list(tmp_path, photos)
    assert detect_data_set_kind(file) == "urls"
    batch = open_batch(file, allow_private=True)
    assert "10 images of 2 classes (“cat” 5, “dog” 5)" in batch.describe() and batch.warnings == []
    found = read_members(batch)
    assert [found[f"{n:08d}-{n}.png"] for n in range(10)] == [
        make_noise_png(str(n)) for n in range(10)
    ]
    assert b"00000001-1.png,cat\n" in found["labels.csv"]
    assert b"".join(batch.read_chunks(3000)) == b"".join(batch.read_chunks())[3000:]


@pytest.mark.parametrize("head", ["none", "no length"])
def test_a_server_that_tells_no_sizes_is_read_for_them(
    photos: Photos, head: str, tmp_path: Path
) -> None:
    photos.no_head = head == "none"
    if head == "no length":
        for number in range(10):
            photos.pages[f"/{number}.png"] = Page(lambda n=number: iter([make_noise_png(str(n))]))  # type: ignore[misc]
    assert (
        len(read_members(open_batch(write_photo_list(tmp_path, photos), allow_private=True))) == 11
    )


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("label,url\ncat,{0}\ndog,{1}\n", "2 images of 2 classes"),
        ("{0}\tcat\n{1}\tdog\n", "2 images of 2 classes"),
        ("url,label,split\n{0},cat,train\n{1},cat,test\n", "1 to learn and 1 held out"),
        ("url,label\n{0},cat\n{1},\n", "1 image of 1 class"),
    ],
)
def test_lists_of_other_forms(photos: Photos, text: str, described: str, tmp_path: Path) -> None:
    write_file(
        tmp_path / "list.txt", text.format(f"{photos.url}/0.png", f"{photos.url}/1.png").encode()
    )
    assert described in open_batch(tmp_path / "list.txt", allow_private=True).describe()


def test_the_identity_is_known_without_reading_and_changes_with_an_etag(
    photos: Photos, tmp_path: Path
) -> None:
    file = write_photo_list(tmp_path, photos)
    first = open_batch(file, allow_private=True).identity()
    assert all(method == "HEAD" for method, _ in photos.asked)
    assert open_batch(file, allow_private=True).identity() == first
    photos.pages["/3.png"] = Page(photos.pages["/3.png"].body, ETag='"other"')
    assert open_batch(file, allow_private=True).identity() != first


HOSTILE: list[tuple[str, str | Page, str]] = [
    ("a file", "file:///etc/passwd", "is of file:; only https:// is fetched"),
    ("plain http", "http://127.0.0.1/a.png", "is of http:; only https://"),
    ("a chain", "simplecache::https://127.0.0.1/a.png", "only https:// is fetched"),
    ("memory", "memory://a.png", "is of memory:; only"),
    ("another number for an address", "https://2130706433/a.png", "is no URL in its plain form"),
    ("a user name", "https://a@127.0.0.1/a.png", "is no URL in its plain form"),
    ("control characters", "https://127.0.0.1/a\x1b[2J.png", "is no URL in its plain form"),
    ("metadata", "https://169.254.169.254/latest", "169.254.169.254 is a link-local address"),
    ("metadata by its name", "https://metadata.google.internal/a", "a cloud's own service for its "
        "machines"),
    ("redirect to metadata", Page(status=302, Location="https://169.254.169.254/"), "link-local address"),
    ("redirect to a file", Page(status=302, Location="file:///etc/passwd"), "redirects to what is "
        "of file:"),
    ("redirect to http", Page(status=301, Location="http://127.0.0.1/0.png"), "redirects to what "
        "is of http:"),
    ("redirect without a scheme", Page(status=302, Location="//evil.test/a"), "redirects to what "
        "is of no scheme"),
    ("redirects in a circle", Page(status=302, Location="/x.png"), "redirects more than 5 times"),
    ("a page", Page(b"<html>", kind="text/html"), "is text/html, no image"),
    ("packed", Page(b"x", Content_Encoding="gzip"), "is packed by 'gzip', which was not asked for"),
    ("nothing", Page(b""), "has 0 bytes; an image has 1 to"),
    ("too long by its header", Page(b"x", Content_Length=str(1 << 40)), "bytes; an image has 1 to"),
    ("an endless body", Page(yield_endless_bytes), "has more than 1,000,000 bytes; an image has 1 to"),
    ("missing", Page(status=404), "answers with status 404"),
    ("failing", Page(status=503), "answers with status 503"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "said"), [pytest.param(e, s, id=n) for n, e, s in HOSTILE])
def test_a_hostile_line_is_left_out_and_listed(
    photos: Photos, entry: str | Page, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(urls, "MAX_IMAGE_BYTES", 1_000_000)
    if isinstance(entry, Page):
        photos.pages["/x.png"] = entry
        entry = f"{photos.url}/x.png"
    batch = open_batch(write_photo_list(tmp_path, photos, f"{entry},cat"), allow_private=True)
    (warning,) = batch.warnings
    assert "Line 12 of “list.csv” names" in warning and said in warning and warning.isprintable()
    assert len(read_members(batch)) == 11


def test_an_answer_that_drips_ends_at_the_deadline(photos: Photos) -> None:
    photos.pages["/x.png"] = Page(drip_bytes)
    with pytest.raises(UnusableUrl, match=r"gives no whole answer within 0\.5 s"):
        ImageFetcher(allow_private=True, seconds=0.5).fetch_size_version_and_first_bytes(
            f"{photos.url}/x.png", 1 << 20
        )


@pytest.mark.parametrize(
    "answers", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["::1"], ["::ffff:10.0.0.1"]]
)
def test_private_addresses_are_dialled_only_where_it_is_allowed(
    photos: Photos, answers: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "list.csv"
    write_file(file, b"url,label\nhttps://photos.test/0.png,cat\n")
    with pytest.raises(
        PackError, match=r"leads to a place that is not public: photos\.test .*--allow-private"
    ):
        UrlImages(file, fetcher=ImageFetcher(resolve=lambda host, port: answers))
    assert photos.asked == []


def test_a_name_is_resolved_once_a_request_and_that_address_dialled(
    photos: Photos, tmp_path: Path
) -> None:
    port = photos.url.rpartition(":")[2]
    asked: list[str] = []

    def resolve_to_loopback(host: str, at: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    head = ImageFetcher(allow_private=True, resolve=resolve_to_loopback).fetch_size_and_version(
        f"https://photos.test:{port}/0.png"
    )
    assert head.size == len(make_noise_png("0")) and asked == ["photos.test"]


def test_a_list_has_a_bound(photos: Photos, tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"more than 5 lines\. .* -o max_entries=10"):
        open_batch(write_photo_list(tmp_path, photos), allow_private=True, max_entries=5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "url,kind\nhttps://a.test/1.png,cat\n",
            "names no column label: each line is a URL and a label",
        ),
        ("url,label\n", "lists no images"),
        ("https://a.test/1.png\n", "lists no images"),
        ("url,label\nftp://a/1.png,cat\nhttp://a/1,cat\n", "2 entries of 2 .* cannot be used"),
    ],
)
def test_what_is_no_list_is_told(text: str, said: str, tmp_path: Path) -> None:
    write_file(tmp_path / "list.txt", text.encode())
    with pytest.raises(PackError, match=said):
        open_batch(tmp_path / "list.txt", kind="urls")


Change = Callable[[Photos], None]
CHANGES: dict[str, tuple[Page, str]] = {
    "another size": (
        Page(make_noise_png("other", 9), ETag='"3"'),
        "bytes when it was listed, and now it has",
    ),
    "another ETag": (
        Page(make_noise_png("3"), ETag='"new"'),
        "has been replaced since it was listed",
    ),
    "gone": (Page(status=404), "answers with status 404"),
    "without an end": (Page(yield_endless_bytes, ETag='"3"'), "and now it has more"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_image_that_changes_under_way_costs_itself_and_no_more(
    photos: Photos, change: str, tmp_path: Path
) -> None:
    batch = open_batch(write_photo_list(tmp_path, photos), allow_private=True)
    assert batch.size > 0
    page, said = CHANGES[change]
    photos.pages["/3.png"] = page
    found = read_members(batch)
    assert found["00000003-3.png"] == bytes(
        len(make_noise_png("3"))
    )  # not an image: the service says so
    assert [data for name, data in found.items() if "-3" not in name][:-1] == [
        make_noise_png(str(n)) for n in range(10) if n != 3
    ]
    (warning,) = batch.warnings
    assert "Line 5 of “list.csv”" in warning and said in warning
    assert read_members(batch) == found


def test_an_image_that_changes_after_the_digest_ends_the_upload(
    photos: Photos, tmp_path: Path
) -> None:
    batch = open_batch(write_photo_list(tmp_path, photos), allow_private=True)
    batch.sha256()
    photos.pages["/3.png"] = Page(status=404)
    with pytest.raises(SourceChanged, match="submit it again"):
        read_members(batch)


def test_an_image_that_changes_while_it_is_sent_ends_the_upload(
    photos: Photos, tmp_path: Path
) -> None:
    batch = open_batch(write_photo_list(tmp_path, photos), allow_private=True)
    photos.pages["/3.png"] = Page(status=404)
    entry = (batch.size - 1024) // 11  # each takes a block of header and one of data
    with pytest.raises(SourceChanged, match=r"Line 5 of “list\.csv”.* answers with status 404"):
        b"".join(batch.read_chunks(1024 * 3 + 700))
    assert entry > 0


def test_many_changes_end_the_batch(photos: Photos, tmp_path: Path) -> None:
    batch = open_batch(write_photo_list(tmp_path, photos), allow_private=True)
    for number in (2, 5):
        photos.pages[f"/{number}.png"] = Page(status=404)
    with pytest.raises(PackError, match=r"2 entries of 10 .* -o max_bad="):
        read_members(batch)


def test_a_url_with_two_labels_is_left_out_and_one_that_is_repeated_counts_once(
    photos: Photos, tmp_path: Path
) -> None:
    file = write_photo_list(tmp_path, photos, f"{photos.url}/0.png,cat", f"{photos.url}/1.png,cat")
    batch = open_batch(file, allow_private=True, max_bad=0.2)
    assert "9 images of 2 classes" in batch.describe() and "0.png" not in " ".join(
        read_members(batch)
    )
    assert "of which Line 12 of “list.csv” says something else" in " ".join(batch.warnings)
    assert "1 line left out, which repeat others." in batch.warnings
