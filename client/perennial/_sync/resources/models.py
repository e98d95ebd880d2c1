"""Models, and the images that they retain for replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from perennial import types
from perennial._sync.http import ApiRequest, Http
from perennial._sync.pages import Pages
from perennial._sync.resources.bases import Bases
from perennial.errors import Conflict, PerennialError
from perennial.fields import NOT_GIVEN, Json, NotGiven, OnEvent, drop_fields_not_given
from perennial.guard import build_api_path
from perennial.transfer import Progress


class Models:
    """Named lineages of versions."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
        self,
        name: str,
        scenario: Literal["data", "task", "class"] = "class",
        *,
        exist_ok: bool = False,
        problem: str | None = None,
        architecture: str | Json | None = None,
        base: str | Json | None = None,
        image: Json | None = None,
        classes: Sequence[str] | None = None,
        recipe: Json | None = None,
        gate: Json | None = None,
        answers: Json | None = None,
        keep_training_data: bool | None = None,
        held_out: Literal["keep", "counts"] | None = None,
        selection: bool | None = None,
        on_held: OnEvent | None = None,
        on_rejected: OnEvent | None = None,
        on_failed: OnEvent | None = None,
        training_data_days: float | None = None,
        allow_lost_classes: bool | None = None,
        description: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> types.Model:
        """Create a model. None keeps the service's default.

        Args:
            exist_ok: return an existing model of this name unchanged.
            problem: what it predicts for an image; the default is classification.
            architecture: a name, or `{"name": …}` with hyper-parameters.
            base: random, pretrained, `perennial/…`, the id of an upload, or `{"model": …,
                "version": …}`.
            image: `{"size": pixels per side, "channels": 1 or 3}`.
            classes: in their order; only if all are known from the beginning.
            recipe, gate: fields that differ from the service's defaults.
            answers: `{"precision": 0.98}` marks predictions as sure so that this share of them is
                correct.
            keep_training_data: retain batches' images after learning.
            held_out: "counts" stores no held-out images.
            selection: set images of each batch aside that are never learned, to compare trials.
            on_held, on_rejected, on_failed: later batches wait for a person (stop) or continue.
            training_data_days: days for which images are retained after a publish.
            allow_lost_classes: a version without classes that the model has learned may pass its
                gate.

        Raises:
            Conflict: the name is taken.
            Invalid: `errors` names the invalid fields.
        """
        fields = {
            "problem": problem,
            "architecture": architecture,
            "base": base,
            "image": image,
            "classes": None if classes is None else [*classes],
            "recipe": recipe,
            "gate": gate,
            "answers": answers,
            "keep_training_data": keep_training_data,
            "held_out": held_out,
            "selection": selection,
            "on_held": on_held,
            "on_rejected": on_rejected,
            "on_failed": on_failed,
            "training_data_days": training_data_days,
            "allow_lost_classes": allow_lost_classes,
            "description": description,
            "tags": None if tags is None else [*tags],
        }
        given_fields = {key: value for key, value in fields.items() if value is not None}
        try:
            ask = ApiRequest(
                "POST", "/v1/models", json={"name": name, "scenario": scenario, **given_fields}
            )
            return self._http.send_and_read(types.Model, ask)
        except Conflict as error:
            if not exist_ok or error.code != "name-taken":
                raise
            # Decided by the conflict and not by a look before it, because another program may
            # create the model meanwhile.
            return self.retrieve(name)

    def adopt(
        self,
        name: str,
        weights: str | Path,
        architecture: str | Json,
        classes: str | Path | Sequence[str],
        *,
        image_size: int | None = None,
        channels: int | None = None,
        config: Json | None = None,
        preset: str | None = None,
        recipe: Json | None = None,
        progress: bool | Progress = False,
    ) -> types.Model:
        """Create a model whose version 1 is a classifier from elsewhere.

        Args:
            weights: its state dict with its head, as a safetensors file.
            architecture: a name, or `{"name": …}` with hyper-parameters.
            classes: names of its outputs in order: a file of them, or the names.
            image_size: pixels per side.
            channels: 1 or 3.
            config, preset: preparation of its images.
            recipe: fields that differ from the service's defaults.

        Raises:
            Conflict: the name is taken.
            Invalid: the file or the classes do not fit; the message says in what.
        """
        bases = Bases(self._http)
        base = bases.create(
            weights,
            architecture,
            image_size=image_size,
            channels=channels,
            config=config,
            preset=preset,
            classes=classes,
            progress=progress,
        )
        try:
            return self.create(name, base=base.id, recipe=recipe)
        except PerennialError:
            # Nobody else knows of the upload, which would count among the owner's bytes.
            with suppress(PerennialError):
                bases.delete(base.id)
            raise

    def list(
        self, *, query: str | None = None, summary: bool = False, limit: int | None = None
    ) -> Pages[types.ListedModel]:
        """List all models, page by page.

        Args:
            query: text in their names.
            summary: include the measurements of each.
        """
        params = {"q": query, "include": "summary" if summary else None, "limit": limit}
        return self._http.pages(types.ListedModel, "/v1/models", params)

    def retrieve(self, model: str) -> types.Model:
        """Return one model, by name or id; look at `attention` first."""
        return self._http.get(types.Model, build_api_path("models", model))

    def update(
        self,
        model: str,
        *,
        recipe: Json | NotGiven | None = NOT_GIVEN,
        gate: Json | NotGiven | None = NOT_GIVEN,
        answers: Json | NotGiven | None = NOT_GIVEN,
        on_held: OnEvent | NotGiven | None = NOT_GIVEN,
        on_rejected: OnEvent | NotGiven | None = NOT_GIVEN,
        on_failed: OnEvent | NotGiven | None = NOT_GIVEN,
        training_data_days: float | NotGiven | None = NOT_GIVEN,
        allow_lost_classes: bool | NotGiven | None = NOT_GIVEN,
        description: str | NotGiven | None = NOT_GIVEN,
        tags: Sequence[str] | NotGiven | None = NOT_GIVEN,
    ) -> types.Model:
        """Change fields for later tasks; see `create` for their meaning.

        Fields that are not given stay unchanged; None resets them.

        Args:
            recipe, gate: merged with the model's own.

        Raises:
            Invalid: `errors` names the invalid fields.
        """
        changes = drop_fields_not_given(
            {
                "recipe": recipe,
                "gate": gate,
                "answers": answers,
                "on_held": on_held,
                "on_rejected": on_rejected,
                "on_failed": on_failed,
                "training_data_days": training_data_days,
                "allow_lost_classes": allow_lost_classes,
                "description": description,
                "tags": tags if tags is None or isinstance(tags, NotGiven) else [*tags],
            }
        )
        return self._http.send_and_read(
            types.Model, ApiRequest("PATCH", build_api_path("models", model), json=changes)
        )

    def delete(self, model: str) -> None:
        """Delete a model with all its data."""
        self._http.send(ApiRequest("DELETE", build_api_path("models", model)))

    def rebase(
        self, model: str, base: str | Mapping[str, Any], *, name: str | None = None
    ) -> types.Rebase:
        """Begin to move a model to another base, by a new model that `finish_rebase` puts in its
        place.

        The response names the batches to send to the new model again.

        Args:
            base: as for a new model.
            name: name of the new model; None: the old one's with `-rebased`.

        Raises:
            Conflict: nothing is learned yet, a rebase of the model is open, or the name is taken.
            Invalid: there is no such base, or the model starts from it already.
        """
        body = {"base": base} if name is None else {"base": base, "name": name}
        return self._http.send_and_read(
            types.Rebase, ApiRequest("POST", build_api_path("models", model, "rebase"), json=body)
        )

    def rebase_status(self, model: str) -> types.Rebase:
        """Return the progress of a rebase, with both models compared on the same held-out images.

        Args:
            model: the old or the new model.
        """
        return self._http.get(types.Rebase, build_api_path("models", model, "rebase"))

    def finish_rebase(
        self,
        model: str,
        *,
        reason: str | None = None,
        missing: Literal["refuse", "allow"] = "refuse",
    ) -> types.Rebase:
        """Move production: the new model takes the old one's name. Called on the old model, move it
        back.

        Raises:
            Conflict: something is missing (`problem["missing"]`), and `missing` does not allow it.
        """
        where = build_api_path("models", model, "rebase", "finish")
        # Not replayable: after the first request, the name belongs to the other model.
        body = {"reason": reason, "missing": missing}
        return self._http.send_and_read(
            types.Rebase, ApiRequest("POST", where, json=body, is_replayable=False)
        )


class Memory:
    """Images that a model retains for replay."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def retrieve(self, model: str) -> types.Memory:
        """Return the number of retained images, their classes, and their bytes."""
        return self._http.get(types.Memory, build_api_path("models", model, "memory"))

    def delete(self, model: str) -> None:
        """Delete all retained images of a model."""
        self._http.send(ApiRequest("DELETE", build_api_path("models", model, "memory")))
