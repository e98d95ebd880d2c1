"""Bases, which are weights that models may start from, and the catalogue of methods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perennial import types
from perennial._sync.http import ApiRequest, Http
from perennial._sync.pages import Pages
from perennial._sync.upload import ANSWER_S, make_upload_body_reader
from perennial._sync.waiting import run_in_thread
from perennial.bars import open_transfer_bar
from perennial.class_file import ClassifierUploadForm, get_class_list_as_text
from perennial.errors import ConfigError
from perennial.guard import build_api_path
from perennial.transfer import FileSource, Progress, format_content_digest


class Bases:
    """Uploaded base weights, from which models start."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
        self,
        file: str | Path,
        architecture: str | Mapping[str, Any],
        *,
        image_size: int | None = None,
        channels: int | None = None,
        config: Mapping[str, Any] | None = None,
        preset: str | None = None,
        classes: str | Path | Sequence[str] | None = None,
        progress: bool | Progress = False,
    ) -> types.Base:
        """Upload a backbone's state dict (safetensors), or that of a whole classifier.

        Args:
            architecture: a name, or `{"name": …}` with hyper-parameters.
            image_size: pixels per side.
            channels: 1 or 3.
            config, preset: preparation of its images.
            classes: of a whole classifier, the names of its outputs in order: a file of them, or
                the names.

        Raises:
            ConfigError: there is no such file.
            Invalid: it does not fit the architecture; the message says in what.
        """
        if not Path(file).is_file():
            raise ConfigError(f"There is no file {file}.")
        source = FileSource.from_path(Path(file))
        params = {
            # The body is the file itself, so everything else travels in the query, objects as JSON.
            "architecture": architecture
            if isinstance(architecture, str)
            else json.dumps(architecture),
            "image_size": image_size,
            "channels": channels,
            "config": None if config is None else json.dumps(config),
            "preset": preset,
        }
        upload: FileSource | ClassifierUploadForm = source
        content_type = "application/safetensors"
        if classes is not None:
            upload = ClassifierUploadForm(source, get_class_list_as_text(classes))
            content_type = upload.content_type
        headers = {
            "Content-Type": content_type,
            "Content-Length": str(upload.size),
            # The service compares it with the bytes received, so damage on the way is noticed.
            "Content-Digest": format_content_digest(run_in_thread(upload.sha256)),
        }
        with open_transfer_bar(Path(file).name, progress) as show:
            body = make_upload_body_reader(upload, upload.size, show)
            ask = ApiRequest(
                "POST", "/v1/bases", params, content=body, headers=headers, timeout_s=ANSWER_S
            )
            return self._http.send_and_read(types.Base, ask)

    def list(self, *, limit: int | None = None) -> Pages[types.ListedBase]:
        """List uploaded bases, newest first, with the models that started from each."""
        return self._http.pages(types.ListedBase, "/v1/bases", {"limit": limit})

    def delete(self, base: str) -> None:
        """Delete a base that no model started from."""
        self._http.send(ApiRequest("DELETE", build_api_path("bases", base)))

    def retrieve(self, base: str) -> types.Base:
        """Return one base."""
        return self._http.get(types.Base, build_api_path("bases", base))


class Methods:
    """Continual-learning methods, optimizers and presets."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> types.MethodList:
        """List all methods, with the JSON Schemas of their hyper-parameters."""
        # The largest page, which has room for every method: the response is returned as it is.
        return self._http.get(types.MethodList, "/v1/methods", {"limit": 200})

    def retrieve(self, name: str) -> types.Method:
        """Return one method."""
        return self._http.get(types.Method, build_api_path("methods", name))


class Architectures:
    """Network architectures."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, *, limit: int | None = None) -> Pages[types.Architecture]:
        """List all architectures, with the JSON Schemas of their hyper-parameters."""
        return self._http.pages(types.Architecture, "/v1/architectures", {"limit": limit})
