"""Versions: what there is, what they answer, and their files."""

from __future__ import annotations

from pathlib import Path

from perennial import types
from perennial._sync.download import download
from perennial._sync.http import Ask, Http
from perennial._sync.pages import Pages
from perennial._sync.waiting import in_thread
from perennial.bars import shown_transfer
from perennial.comparison import Comparison
from perennial.errors import BadAnswer
from perennial.guard import path, safe_filename
from perennial.pictures import Image, Images, as_numbers, read_parts
from perennial.transfer import Downloaded, Progress

__all__ = ["Versions", "Image", "Images"]


class Versions:
    """Immutable states of a model."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, model: str, *, limit: int | None = None) -> Pages[types.VersionItem]:
        """All versions by rising number, held ones among them; `retrieve` has all of one."""
        return self._http.pages(types.VersionItem, path("models", model, "versions"), {"limit": limit})

    def retrieve(self, model: str, version: int | str = "production") -> types.Version:
        """One version, by number or alias."""
        return self._http.get(types.Version, path("models", model, "versions", version))

    def update(self, model: str, version: int | str, *, note: str | None) -> types.Version:
        """Write a note to a version."""
        ask = Ask("PATCH", path("models", model, "versions", version), json={"note": note})
        return self._http.call(types.Version, ask)

    def results(
        self, model: str, version: int | str = "production", *, limit: int | None = None
    ) -> Pages[types.TaskResult]:
        """Right answers by task and class."""
        return self._http.pages(
            types.TaskResult, path("models", model, "versions", version, "results"), {"limit": limit}
        )

    def files(
        self, model: str, version: int | str = "production", *, limit: int | None = None
    ) -> Pages[types.File]:
        """Parts that can be fetched."""
        return self._http.pages(
            types.File, path("models", model, "versions", version, "files"), {"limit": limit}
        )

    def compare(
        self, model: str, a: int | str, b: int | str = "production", *, task: int | None = None
    ) -> types.Compare:
        """Two versions on the same held-out images: what `b` gets wrong that `a` gets right, and the other way round.

        Args:
            task: only on its images; None: on those of all tasks that both answer.

        Raises:
            Conflict: no answers are kept of what is asked for (`code` is answers-missing).
        """
        where = path("models", model, "compare")
        return self._http.get(types.Compare, where, {"a": a, "b": b, "task": task})

    def compare_images(
        self,
        model: str,
        a: int | str,
        b: int | str = "production",
        *,
        kind: str = "negative",
        task: int | None = None,
        label: str | None = None,
        limit: int | None = None,
    ) -> Pages[types.ComparedImage]:
        """The images that flipped, with both answers.

        Args:
            kind: right by `a` alone (negative), by `b` alone (positive), by none (both_wrong).
            label: only images of this class.
        """
        asked = {"a": a, "b": b, "kind": kind, "task": task, "class": label, "limit": limit}
        return self._http.pages(types.ComparedImage, path("models", model, "compare", "images"), asked)

    def compare_with_pictures(
        self,
        model: str,
        a: int | str,
        b: int | str = "production",
        *,
        kind: str = "negative",
        task: int | None = None,
        label: str | None = None,
        most: int = 12,
    ) -> Comparison:
        """The same counts with images that flipped and their pictures, which a notebook shows.

        Args:
            kind, label: which images, as of `compare_images`; task: of both.
            most: images that are fetched, 1 to 200.

        Raises:
            Conflict: as `compare`.
            BadAnswer: a picture is no PNG.
        """
        compared = self.compare(model, a, b, task=task)
        first = self.compare_images(model, a, b, kind=kind, task=task, label=label, limit=most)
        images, pictures = first.data[:most], []
        for one in images:
            where = path("models", model, "tasks", one.task, "images", "held_out", f"{one.index}.png")
            pictures.append((self._http.send(Ask("GET", where))).content)
        try:
            return Comparison(compared, images, pictures)
        except ValueError as error:
            raise BadAnswer("The service sends a picture that is no PNG.") from error

    def download(
        self,
        model: str,
        version: int | str | None = "production",
        to: str | Path | None = None,
        *,
        format: str = "safetensors",
        progress: bool | Progress = False,
        max_bytes: int | None = None,
    ) -> Downloaded:
        """Fetch a version as a zip; what an earlier call left goes on, and its sha256 is verified.

        Args:
            to: the file; None: `<model>-<version>.zip` in the working directory.
            format: safetensors, or what else the service offers (onnx).
            max_bytes: that it may have; None: 16 GiB.

        Raises:
            DigestMismatch: the bytes are not those that the service named.
            BadAnswer: it is larger, or the service names a file that would lie elsewhere.
            Invalid: it cannot be had in this format, and why; `code` is export-unavailable.
        """
        wanted = "production" if version is None else version
        target = Path(to) if to is not None else Path()
        if target.is_dir():
            target /= safe_filename(f"{model}-{wanted}.zip")
        where = path("models", model, "versions", wanted, "download")
        params = None if format == "safetensors" else {"format": format}
        with shown_transfer(target.name, progress) as show:
            return download(self._http, where, target, params, show, max_bytes)

    def download_file(
        self, model: str, version: int | str, part: str, to: str | Path, *, progress: bool | Progress = False
    ) -> Downloaded:
        """Fetch one part of a version."""
        where = path("models", model, "versions", version, "files", part)
        with shown_transfer(part, progress) as show:
            return download(self._http, where, Path(to), progress=show)

    def predict(
        self,
        model: str,
        images: Images,
        *,
        version: int | str = "production",
        top_k: int | None = None,
        task: int | None = None,
    ) -> types.Predict:
        """What a version says of images, in their order; one that cannot be used has an error of its own.

        Args:
            images: one or several of: files, bytes of files, files opened with mode "rb", images of PIL (sent as PNG:
                nothing is lost); or arrays of numbers from 0 to 255 (N×H×W or N×H×W×C, as nested lists or with a
                method `tolist`).
            top_k: how many of the most probable labels each image gets.
            task: in the scenario `task`, whose head answers.

        Raises:
            TypeError: an item is none of these, or files and arrays are mixed.
            OSError: a file cannot be read.
        """
        where = path("models", model, "versions", version, "predict")
        params = {"top_k": top_k, "task": task}
        files = in_thread(lambda: read_parts(images))
        body = {"images": as_numbers(images)} if files is None else None
        ask = Ask("POST", where, params, json=body, files=files)
        return self._http.call(types.Predict, ask)
