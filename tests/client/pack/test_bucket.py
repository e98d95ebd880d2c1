"""The images of a bucket: by S3's protocol from a server that lies, and from a real one."""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from photo_servers import Bucket, Page, run_photo_server, yield_endless_bytes
from sources import make_noise_png, make_samples, write_class_folders

from perennial.pack import (
    ExtraMissing,
    PackedBatch,
    PackError,
    SourceChanged,
    bad,
    extras,
    open_batch,
)
from perennial.pack.remote.address import is_remote_address, parse_bucket_address

Open = Callable[..., PackedBatch]


def make_pictures(prefix: str = "photos/") -> dict[str, bytes]:
    return {
        f"{prefix}{kind}/{n}.png": make_noise_png(f"{kind}{n}")
        for kind in ("cat", "dog")
        for n in range(10)
    }


@pytest.fixture
def bucket() -> Bucket:
    return Bucket(make_pictures())


@pytest.fixture
def open_it(bucket: Bucket) -> Iterator[Open]:
    with run_photo_server() as server:
        server.answer = bucket.answer

        def open_bucket_batch(address: str = "s3://birds/photos", **options: Any) -> PackedBatch:
            return open_batch(address, endpoint=server.url, anonymous=True, **options)

        yield open_bucket_batch


def read_members(batch: PackedBatch) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(batch.read_chunks()))) as tar:
        return {m.name: file.read() for m in tar if (file := tar.extractfile(m))}


def test_a_bucket_becomes_the_batch_of_the_folder_that_it_is(bucket: Bucket, open_it: Open) -> None:
    batch = open_it()
    assert bucket.read == []
    assert (
        "20 images of 2 classes (“cat” 10, “dog” 10)" in batch.describe() and batch.warnings == []
    )
    found = read_members(batch)
    assert found == {key.removeprefix("photos/"): data for key, data in bucket.objects.items()}
    assert b"".join(batch.read_chunks(5000)) == b"".join(batch.read_chunks())[5000:]


def test_parts_and_loose_files_are_those_of_a_folder(bucket: Bucket, open_it: Open) -> None:
    bucket.objects.clear()
    bucket.objects |= (
        make_pictures("a/train/")
        | make_pictures("a/test/")
        | {"a/README.md": b"x", "a/train/": b""}
    )
    batch = open_it("s3://birds/a/")
    assert "20 to learn and 20 held out" in batch.describe()
    assert [warning for warning in batch.warnings if "README.md" in warning] == batch.warnings


def test_a_listing_of_several_pages_is_read_whole(bucket: Bucket, open_it: Open) -> None:
    bucket.objects |= {f"photos/owl/{n}.png": b"x" for n in range(2500)}
    asked: list[tuple[int, int]] = []
    assert "“owl” 2,500" in open_it(progress=lambda *of: asked.append(of)).describe()
    assert asked == [(1000, 0), (2000, 0), (2520, 0)]


def test_the_identity_is_known_without_reading(bucket: Bucket, open_it: Open) -> None:
    first = open_it().identity()
    assert first == open_it().identity() and bucket.read == []
    bucket.objects["photos/cat/1.png"] = make_noise_png("other")
    assert open_it().identity() != first


KEYS: dict[str, tuple[str, str]] = {
    "climbing": ("photos/cat/../../etc/passwd.png", "climbs out of its folder"),
    "absolute": ("photos//etc/a.png", "has an absolute path"),
    "a drive": ("photos/C:/a.png", "has an absolute path"),
    "a backslash": ("photos/cat\\a.png", "has a backslash"),
    "a control character": ("photos/cat/\x1b[2Ja.png", "has a control character"),
    "turned around": ("photos/cat/\u202egnp.exe.png", "has a control character"),
    "an empty part": ("photos/cat//a.png", "has an empty part"),
    "a point": ("photos/cat/./a.png", "has an empty part, or “.”"),
    "long": (f"photos/cat/{'a' * 1100}.png", "has a name of more than 1,024 bytes"),
    "deep": (f"photos/{'a/' * 40}a.png", "lies deeper than 32 folders"),
    "nothing": ("photos/cat/empty.png", "has 0 bytes"),
}


def test_objects_of_hostile_keys_are_left_out_and_listed(
    bucket: Bucket, open_it: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bad, "_LISTED", len(KEYS))
    bucket.objects |= {
        key: b"" if case == "nothing" else make_noise_png("x") for case, (key, _) in KEYS.items()
    }
    batch = open_it(max_bad=0.5)
    (warning,) = batch.warnings
    assert warning.startswith(f"{len(KEYS)} entries of “s3://birds/photos” left out as bad: ")
    assert [
        said for _, said in KEYS.values() if said not in warning
    ] == [] and warning.isprintable()
    assert len(read_members(batch)) == 20


def test_names_that_some_systems_do_not_take_are_numbers(bucket: Bucket, open_it: Open) -> None:
    names = ["-rf.png", "con.png", "12:30.png", "what?.png", " a.png"]
    bucket.objects |= {f"photos/cat/{name}": make_noise_png(name) for name in names}
    found = read_members(open_it())
    assert {make_noise_png(name) for name in names} == {
        data for name, data in found.items() if "/000000" in name
    }


def test_a_listing_has_a_bound(bucket: Bucket, open_it: Open) -> None:
    bucket.objects |= {f"photos/owl/{n}.png": b"x" for n in range(3000)}
    with pytest.raises(PackError, match=r"more than 2,000 keys\. .* -o max_entries=4000"):
        open_it(max_entries=2000)


def test_a_listing_without_an_end_ends(bucket: Bucket, open_it: Open) -> None:
    bucket.more = lambda token: token or "1"
    with pytest.raises(PackError, match="comes to no end: it repeats a page"):
        open_it()
    bucket.more = lambda token: (
        f"0-{int(token.partition('-')[2] or 0) + 1}"
    )  # the first page for ever
    with pytest.raises(PackError, match="more than 500 keys"):
        open_it(max_entries=500)


def test_an_object_that_is_listed_longer_than_an_image_is_bad(
    bucket: Bucket, open_it: Open
) -> None:
    bucket.sizes["photos/cat/1.png"] = 1 << 40
    (warning,) = open_it().warnings
    assert "“photos/cat/1.png” has 1,099,511,627,776 bytes" in warning


CHANGES: dict[str, Callable[[Bucket], None]] = {
    "another object": lambda bucket: bucket.objects.update(
        {"photos/cat/3.png": make_noise_png("other", 9)}
    ),
    "gone": lambda bucket: bucket.objects.__delitem__("photos/cat/3.png"),
    "shorter": lambda bucket: bucket.instead.update({"photos/cat/3.png": Page(b"x")}),
    "endless": lambda bucket: bucket.instead.update(
        {"photos/cat/3.png": Page(yield_endless_bytes)}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_object_that_changes_under_way_costs_itself_and_no_more(
    change: str, bucket: Bucket, open_it: Open
) -> None:
    batch = open_it()
    assert batch.size > 0
    CHANGES[change](bucket)
    found = read_members(batch)
    assert found["cat/3.png"] == bytes(len(make_noise_png("cat3")))
    assert {name: data for name, data in found.items() if name != "cat/3.png"} == {
        key.removeprefix("photos/"): data
        for key, data in make_pictures().items()
        if "cat/3" not in key
    }
    (warning,) = batch.warnings
    assert "The object “photos/cat/3.png”" in warning


def test_an_object_that_changes_after_the_digest_ends_the_upload(
    bucket: Bucket, open_it: Open
) -> None:
    batch = open_it()
    batch.sha256()
    bucket.objects["photos/cat/3.png"] = make_noise_png("other")
    with pytest.raises(SourceChanged, match=r"cat/3\.png” .* submit it again"):
        read_members(batch)


def test_a_server_that_refuses_is_told(bucket: Bucket, open_it: Open) -> None:
    bucket.answer = lambda path, headers: Page(status=403)  # type: ignore[method-assign]
    with run_photo_server() as server:
        server.answer = bucket.answer
        with pytest.raises(
            PackError, match=r"s3://birds/photos” cannot be listed: .* credentials right\?"
        ):
            open_batch("s3://birds/photos", endpoint=server.url, anonymous=True)


@pytest.mark.parametrize("prefix", ["nothing", "photo"])
def test_a_prefix_is_a_folder(prefix: str, open_it: Open) -> None:
    with pytest.raises(PackError, match="has no objects; is the prefix a folder"):
        open_it(f"s3://birds/{prefix}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3://birds/a::file:///etc", "chains addresses"),
        ("simplecache::s3://birds/a", "chains addresses"),
        (
            "file:///etc/passwd",
            "is no source that is read; possible are paths, and s3://bucket/prefix",
        ),
        ("local:///etc", "is no source that is read"),
        ("memory://a", "is no source that is read"),
        ("https://example.org/a.png", "URLs are sent as a list: a CSV"),
        ("gcs://birds/a", "Write gs://"),
        ("S3://birds/a", "Write s3://"),
        ("s3:///a", "is no name of a bucket"),
        ("s3://user@birds/a", "is no name of a bucket"),
        ("s3://../a", "is no name of a bucket"),
        ("s3://birds/a\x1b", "has control characters"),
    ],
)
def test_exactly_three_schemes_are_read(text: str, said: str) -> None:
    assert is_remote_address(text)
    with pytest.raises(PackError, match=said):
        open_batch(text)


def test_paths_are_no_addresses() -> None:
    for path in ("photos", "C:/photos", "C:\\photos", "a:b", "./s3/birds", "/s3:/birds"):
        assert not is_remote_address(path)
    assert (
        parse_bucket_address("s3://birds/a/b") == ("s3", "birds", "a/b/")
        and parse_bucket_address("gs://birds").prefix == ""
    )


@pytest.mark.parametrize(("scheme", "module"), [("s3", "s3fs"), ("gs", "gcsfs"), ("az", "adlfs")])
def test_a_missing_library_is_named_with_the_command(
    scheme: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_import_error(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(extras.importlib, "import_module", raise_import_error)
    with pytest.raises(
        ExtraMissing, match=rf"needs {module}.*pip install 'perennial-client\[{scheme}\]'"
    ):
        open_batch(f"{scheme}://birds/photos")


def test_options_of_other_sources_are_refused() -> None:
    with pytest.raises(TypeError, match="A bucket has no option whole"):
        open_batch("s3://birds/a", whole=True)
    with pytest.raises(PackError, match="copy it to a disk"):
        open_batch("s3://birds/a", kind="coco")
    with pytest.raises(PackError, match="max_entries is “many”; it is a whole number"):
        open_batch("s3://birds/a", max_entries="many")
    with pytest.raises(PackError, match="The endpoint “birds” is no URL"):
        open_batch("s3://birds/a", endpoint="birds")


@pytest.mark.slow
@pytest.mark.services("s3")
def test_a_real_bucket_is_the_folder_that_was_copied_to_it(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from minio import Minio

    client = Minio(
        s3.endpoint,
        access_key=s3.access_key,
        secret_key=s3.secret_key,
        secure=False,
        region="us-east-1",
    )
    client.make_bucket("birds-of-a-user")
    source = write_class_folders(tmp_path)
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        client.fput_object(
            "birds-of-a-user", f"week 1/{path.relative_to(source).as_posix()}", str(path)
        )
    for name, value in (("ACCESS_KEY_ID", s3.access_key), ("SECRET_ACCESS_KEY", s3.secret_key)):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    batch = open_batch("s3://birds-of-a-user/week 1", endpoint=f"http://{s3.endpoint}")
    assert b"".join(batch.read_chunks()) == b"".join(open_batch(source).read_chunks())
    assert len(make_samples()) == 14 and batch.warnings == []
    for key, data, said in (
        ("cat-1", None, "is there no more"),
        ("cat-2", make_noise_png("other"), "is there no more, or has been replaced"),
    ):
        later = open_batch("s3://birds-of-a-user/week 1", endpoint=f"http://{s3.endpoint}")
        if data is None:
            client.remove_object("birds-of-a-user", f"week 1/train/cat/{key}.png")
        else:  # of the same size, by its ETag alone another
            client.put_object(
                "birds-of-a-user", f"week 1/train/cat/{key}.png", io.BytesIO(data), len(data)
            )
        assert read_members(later)[f"train/cat/{key}.png"].strip(b"\0") == b""
        assert f"{key}.png” {said}" in later.warnings[0]
