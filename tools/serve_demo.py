"""`perennial serve --demo`: a service with a model that has learned the sample pictures.

The demo has a data directory of its own. At its first start, the model learns the pictures of the
package (`core.packaged.sample_pictures`) over HTTP: three batches by its own recipe, and a fourth
by fine-tuning, which forgets and is held. A build that was interrupted is begun again.
"""

import json
import os
import shutil
import signal
import sys
import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from core.files.permissions import UMASK
from core.packaged import sample_pictures
from perennial import GateHeld, JobHandle, NotFound, Perennial, PerennialError, types
from perennial.bars import compute_job_share_done, describe_job_state
from perennial.cli.service.login import has_graphical_browser
from tools import service
from worker import data_folder_lock, launcher

FOLDER = "perennial-demo"
MARKER = "demo.json"
"""File that marks a data directory as a demo's, and says whether the demo is complete."""
FORGETS = {"method": "finetune", "epochs": 2}
"""Recipe of the last batch: training on its pictures alone, as without this service."""
JOB_S = 900.0
"""Seconds that one batch may take, on a slow and busy machine."""
DESCRIPTION = (
    "Pictures of things on a table, three kinds in each batch. The last batch was learned by "
    "fine-tuning, to show what becomes of a version that forgets."
)
CONSOLE = Console(stderr=True, highlight=False)


class CannotServeDemo(RuntimeError):
    """The demo of sample pictures cannot be built or served; the message says why."""


@dataclass(frozen=True)
class DemoServingOptions:
    """Options of the demo to serve: its data directory and port.

    Attributes:
        data_dir: its data directory.
        port: of 127.0.0.1; None: the service's default, or a free one if that is taken.
        is_reset: True to build it again.
        opens_browser: None: where there is a browser.
    """

    data_dir: Path
    port: int | None = None
    is_reset: bool = False
    opens_browser: bool | None = None


def choose_demo_data_directory(chosen: Path | None) -> Path:
    """Return the demo's data directory: the chosen one, or one beside the service's."""
    if chosen is not None:
        return chosen.absolute()
    return Path(os.environ.get("PERENNIAL_DATA_DIR") or "perennial-data").absolute().parent / FOLDER


def serve_demo(demo: DemoServingOptions) -> int:
    """Build the sample-picture demo if necessary, and serve it until Ctrl-C.

    Raises:
        CannotServeDemo: the directory is not a demo's or is in use, or the demo cannot be built.
    """
    os.umask(UMASK)
    require_empty_or_demo_directory(demo.data_dir)
    # By an exception, so that the `with` blocks below end the service that they have started.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    start = time.monotonic()
    try:
        is_new = empty_demo_directory_unless_kept(demo)
        if is_new:
            CONSOLE.print(
                f"Building the demo in {demo.data_dir}, once: the service starts, and a model learns "
                "four batches of pictures. This takes about a minute.",
                soft_wrap=True,
            )
        else:
            CONSOLE.print(f"Starting the demo in {demo.data_dir} …", soft_wrap=True)
        with service.run_temporary_service(
            demo.data_dir,
            # Without keys, which only a service on a loopback address may be.
            {"PERENNIAL_AUTH": "off"},
            inherits_settings=False,
            port=choose_default_or_free_demo_port(demo.port),
            in_terminal=True,
        ) as running:
            with Perennial(running.key, base_url=running.url) as client:
                if is_new:
                    create_demo_model_and_learn_batches(client)
                    _write_demo_marker(demo.data_dir, is_complete=True)
                    CONSOLE.print(f"Complete after {time.monotonic() - start:.0f} s.\n")
                _print_and_open_demo_page(demo, running, client)
            return _wait_for_and_print_service_end(running)
    except KeyboardInterrupt:
        return 0
    except data_folder_lock.DataDirectoryInUse as used:
        raise CannotServeDemo(f"{used.holder} Use that one, or stop it: {used.stop}.") from used
    except service.ServiceNotReady as error:
        raise CannotServeDemo(str(error)) from error
    except PerennialError as error:
        raise CannotServeDemo(
            f"The demo cannot be built: {error} Its log is {demo.data_dir / 'service.log'}. Start "
            "it again to build it from the beginning."
        ) from error


def require_empty_or_demo_directory(data_dir: Path) -> None:
    """Check that a directory contains a demo or can be used for one.

    Raises:
        CannotServeDemo: it holds something else.
    """
    if data_dir.exists() and not data_dir.is_dir():
        raise CannotServeDemo(f"{data_dir} is a file. Name a folder for the demo with --data-dir.")
    if not data_dir.exists() or (data_dir / MARKER).exists():
        return
    # A start that was killed at once may have left the lock alone.
    other_names = sorted(
        path.name for path in data_dir.iterdir() if path.name != data_folder_lock.NAME
    )
    if other_names:
        raise CannotServeDemo(
            f"{data_dir} is not a demo's directory: it holds {other_names[0]!r}. Only an empty folder, "
            "or one in which a demo was begun, is used for it. Name another with --data-dir."
        )


def is_demo_complete(data_dir: Path) -> bool:
    """Return True if the directory contains a completely built demo."""
    try:
        return json.loads((data_dir / MARKER).read_text()).get("complete") is True
    except (OSError, ValueError, AttributeError):
        return False


def create_demo_model_and_learn_batches(client: Perennial) -> None:
    """Build the demo's model: learn the sample pictures, and show each step on the terminal.

    Raises:
        PerennialError: a batch cannot be learned.
        CannotServeDemo: the version that should have forgotten has passed its gate.
    """
    model = sample_pictures.MODEL
    client.models.create(
        model,
        base=sample_pictures.BASE,
        image={"size": sample_pictures.SIZE},
        recipe={"seed": 0},
        description=DESCRIPTION,
    )
    *good, last = sample_pictures.BATCHES
    with DemoJobBars(CONSOLE) as bars:
        for number, name in enumerate(good, 1):
            bars.show_job_until_ended(_describe_batch(name), _submit_pictures(client, name))
            if number == 2:
                client.aliases.rollback(model, reason="to show a rollback")
                client.aliases.promote(model, number, reason="the rollback was only shown")
                client.aliases.follow(model)
        try:
            job = _submit_pictures(client, last, FORGETS)
            bars.show_job_until_ended(f"{_describe_batch(last)}, by fine-tuning", job)
        # As it should be: the demo shows a version that the gate holds.
        except GateHeld:
            return
    raise CannotServeDemo(
        "The last version of the demo passed its gate, although it was learned by fine-tuning and "
        "had to forget. Build the demo again with --reset."
    )


class DemoJobBars:
    """Shows a progress bar for each job of the demo; lines where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(16),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "DemoJobBars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show_job_until_ended(self, title: str, job: JobHandle) -> types.Job:
        """Show the progress of a job of the demo until it has ended, and return the job.

        Raises:
            perennial.JobEnded: it did not end with a published version.
        """
        row = self._progress.add_task(title, total=1.0, state="")

        def update_row(now: types.Job) -> None:
            self._progress.update(
                row, completed=compute_job_share_done(now), state=describe_job_state(now)
            )

        try:
            return job.wait(JOB_S, progress=update_row)
        finally:
            if job.job is not None and not self._console.is_terminal:
                self._console.print(f"{title}: {describe_job_state(job.job)}")


def _submit_pictures(
    client: Perennial, name: str, recipe: dict[str, object] | None = None
) -> JobHandle:
    archive = sample_pictures.locate_packaged_sample_archive(name)
    return client.submit(sample_pictures.MODEL, archive, name=name, recipe=recipe)


def _describe_batch(name: str) -> str:
    return f"{name}: {', '.join(sample_pictures.BATCHES[name])}"


def empty_demo_directory_unless_kept(demo: DemoServingOptions) -> bool:
    """Empty the demo's data directory unless its demo is kept; return True if it must be built.

    Raises:
        worker.data_folder_lock.DataDirectoryInUse: a service uses it.
    """
    with data_folder_lock.lock_data_directory(demo.data_dir):
        if is_demo_complete(demo.data_dir) and not demo.is_reset:
            return False
        # First, so that a directory that is half emptied is still known as a demo's.
        _write_demo_marker(demo.data_dir, is_complete=False)
        for path in demo.data_dir.iterdir():
            if path.name in (MARKER, data_folder_lock.NAME):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    return True


def _write_demo_marker(data_dir: Path, *, is_complete: bool) -> None:
    (data_dir / MARKER).write_text(json.dumps({"complete": is_complete}) + "\n")


def choose_default_or_free_demo_port(chosen: int | None) -> int:
    """Return the port to serve the demo on; 0 chooses a free one."""
    if chosen is not None:
        return chosen or service.find_free_port()
    port = launcher.DEFAULT_PORT
    return service.find_free_port() if launcher.is_port_taken(launcher.DEFAULT_HOST, port) else port


def _print_and_open_demo_page(
    demo: DemoServingOptions, running: service.RunningService, client: Perennial
) -> None:
    """Print the demo's URLs, and open the page of its model in a browser."""
    page = f"{running.url}/ui/models/{sample_pictures.MODEL}"
    try:
        model = client.models.retrieve(sample_pictures.MODEL)
    except NotFound:  # a visitor has deleted it
        page = f"{running.url}/ui"
        CONSOLE.print(f"Open {page}. Its model was deleted; --reset makes it again.")
    else:
        _print_demo_page_addresses(page, model)
    CONSOLE.print(
        "\nCtrl-C stops the demo; `perennial serve --demo` starts it again as you left it."
    )
    if demo.opens_browser or (demo.opens_browser is None and has_graphical_browser()):
        webbrowser.open(page)


def _print_demo_page_addresses(page: str, model: types.Model) -> None:
    held_version = next((one.version for one in model.attention if one.kind == "held"), None)
    if held_version is None:
        CONSOLE.print(f"Open {page}: the model as you left it.", soft_wrap=True)
        return
    production = model.aliases["production"]
    CONSOLE.print(
        f"Open {page}: version {held_version} is held there because it forgot, and waits for your "
        "decision.",
        soft_wrap=True,
    )
    CONSOLE.print(
        f"The pictures that it gets wrong, and version {production} in production gets right: "
        f"{page}/compare?a={production}&b={held_version}",
        soft_wrap=True,
    )
    CONSOLE.print(
        "“How production moved”, below the table of versions, has a rollback.", soft_wrap=True
    )


def _wait_for_and_print_service_end(running: service.RunningService) -> int:
    """Wait until the demo's service ends by itself, which is an error."""
    status = running.process.wait()
    CONSOLE.print(f"The service ended with status {status}; its log is {running.log}.")
    return 1
