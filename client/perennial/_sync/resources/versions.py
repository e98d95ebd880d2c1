"""Versions: list, predict, compare and download; and their accuracy on each task."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perennial import types
from perennial._sync.download import download_url_path_to_file
from perennial._sync.http import ApiRequest, Http
from perennial._sync.pages import Pages
from perennial._sync.waiting import run_in_thread
from perennial.bars import open_transfer_bar
from perennial.comparison import Comparison
from perennial.errors import BadAnswer
from perennial.guard import build_api_path, require_safe_filename
from perennial.pictures import (
    Image,
    Images,
    convert_arrays_to_nested_lists,
    convert_images_to_form_parts,
)
from perennial.transfer import Downloaded, Progress

__all__ = ["Versions", "Image", "Images"]


class Versions:
    """Immutable states of a model."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, model: str, *, limit: int | None = None) -> Pages[types.VersionItem]:
        """List all versions in ascending order, including held ones; `retrieve` returns all
        details.
        """
        return self._http.pages(
            types.VersionItem, build_api_path("models", model, "versions"), {"limit": limit}
        )

    def retrieve(self, model: str, version: int | str = "production") -> types.Version:
        """Return one version, by number or alias."""
        return self._http.get(
            types.Version, build_api_path("models", model, "versions", version)
        )

    def update(self, model: str, version: int | str, *, note: str | None) -> types.Version:
        """Set the note of a version."""
        ask = ApiRequest(
            "PATCH", build_api_path("models", model, "versions", version), json={"note": note}
        )
        return self._http.send_and_read(types.Version, ask)

    def results(
        self, model: str, version: int | str = "production", *, limit: int | None = None
    ) -> Pages[types.TaskResult]:
        """List counts of correct predictions by task and class."""
        return self._http.pages(
            types.TaskResult,
            build_api_path("models", model, "versions", version, "results"),
            {"limit": limit},
        )

    def files(
        self, model: str, version: int | str = "production", *, limit: int | None = None
    ) -> Pages[types.File]:
        """List the downloadable parts."""
        return self._http.pages(
            types.File,
            build_api_path("models", model, "versions", version, "files"),
            {"limit": limit},
        )

    def compare(
        self, model: str, a: int | str, b: int | str = "production", *, task: int | None = None
    ) -> types.Compare:
        """Compare two versions on the same held-out images: those that only one of them predicts
        correctly.

        Args:
            task: only on its images; None: on those of all tasks that both predict.

        Raises:
            Conflict: no predictions are stored for these images (`code` is answers-missing).
        """
        where = build_api_path("models", model, "compare")
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
        """List the images that flipped, with both predictions.

        Args:
            kind: correct only by `a` (negative), only by `b` (positive), by none (both_wrong).
            label: only images of this class.
        """
        params = {"a": a, "b": b, "kind": kind, "task": task, "class": label, "limit": limit}
        return self._http.pages(
            types.ComparedImage, build_api_path("models", model, "compare", "images"), params
        )

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
        """Compare two versions, and fetch pictures of images that flipped, to show in a notebook.

        Args:
            kind, label: selection of images, as in `compare_images`.
            task: only on its images.
            most: maximum number of images to fetch, 1 to 200.

        Raises:
            Conflict: as `compare`.
            BadAnswer: a picture is not a PNG.
        """
        compared = self.compare(model, a, b, task=task)
        first = self.compare_images(
            model, a, b, kind=kind, task=task, label=label, limit=most
        )
        # The service may send more than `limit`, and each image costs a request.
        images, pictures = first.data[:most], []
        for one in images:
            where = build_api_path(
                "models", model, "tasks", one.task, "images", "held_out", f"{one.index}.png"
            )
            pictures.append((self._http.send(ApiRequest("GET", where))).content)
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
        """Fetch a version as a zip and verify its SHA-256, resuming an interrupted download.

        Args:
            to: the file; None: `<model>-<version>.zip` in the working directory.
            format: safetensors, or another format of the service (onnx).
            max_bytes: maximum size in bytes; None: 16 GiB.

        Raises:
            DigestMismatch: the bytes do not match the announced digest.
            BadAnswer: the file is larger than allowed, or its name would place it elsewhere.
            Invalid: this format is not available, and why; `code` is export-unavailable.
        """
        version_or_alias = "production" if version is None else version
        target = Path(to) if to is not None else Path()
        if target.is_dir():
            # The model is whatever text the caller passes: a slash in it
            # would lead to another folder.
            target /= require_safe_filename(f"{model}-{version_or_alias}.zip")
        where = build_api_path("models", model, "versions", version_or_alias, "download")
        params = None if format == "safetensors" else {"format": format}
        with open_transfer_bar(target.name, progress) as show:
            return download_url_path_to_file(
                self._http, where, target, params, show, max_bytes
            )

    def download_file(
        self,
        model: str,
        version: int | str,
        part: str,
        to: str | Path,
        *,
        progress: bool | Progress = False,
    ) -> Downloaded:
        """Fetch one part of a version."""
        where = build_api_path("models", model, "versions", version, "files", part)
        with open_transfer_bar(part, progress) as show:
            return download_url_path_to_file(self._http, where, Path(to), progress=show)

    def predict(
        self,
        model: str,
        images: Images,
        *,
        version: int | str = "production",
        top_k: int | None = None,
        task: int | None = None,
    ) -> types.Predict:
        """Predict labels of images with a version, in the order given.

        An image that cannot be used gets an error of its own.

        Args:
            images: one or several of: files, bytes of files, files opened with mode "rb", PIL
                images (sent losslessly as PNG); or arrays of numbers from 0 to 255 (N×H×W or
                N×H×W×C, as nested lists or with a method `tolist`).
            top_k: number of most probable labels per image.
            task: the task whose head predicts, in the scenario `task`.

        Raises:
            TypeError: an item is none of these, or files and arrays are mixed.
            OSError: a file cannot be read.
        """
        where = build_api_path("models", model, "versions", version, "predict")
        params = {"top_k": top_k, "task": task}
        files = run_in_thread(lambda: convert_images_to_form_parts(images))
        body = {"images": convert_arrays_to_nested_lists(images)} if files is None else None
        ask = ApiRequest("POST", where, params, json=body, files=files)
        return self._http.send_and_read(types.Predict, ask)


class Metrics:
    """Accuracy of each version on each task."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def retrieve(
        self,
        model: str,
        version: int | str = "latest",
        *,
        first: int | None = None,
        last: int | None = None,
        tasks: Iterable[int] | None = None,
    ) -> types.Metrics:
        """Return the accuracy matrix and its summary.

        Args:
            version: version whose ancestors the summary covers.
            first, last: first and last version with a row.
            tasks: first and last task with a column.
        """
        task_range = ",".join(str(task) for task in tasks) if tasks is not None else None
        params = {"version": version, "from": first, "to": last, "tasks": task_range}
        return self._http.get(
            types.Metrics, build_api_path("models", model, "metrics"), params
        )
