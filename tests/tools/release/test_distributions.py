"""The files of a release: what is in them, and that they work where nothing else is."""

import email
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis_server import RedisServer

from tests.own_commands import NAMED
from tools.guide.sources import find_guide_documents
from tools.release import distributions
from tools.release.distributions import build_distributions_into_emptied_folder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
JOURNEY = ROOT / "tools" / "release" / "journey.py"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
TOOLS = {
    *("__init__", "backup", "commands", "doctor", "drift_words", "housekeeping"),
    *("import_torchvision", "review", "serve_demo", "service"),
}
"""Modules of `tools` that an operator needs; the others work on a checkout."""
INFO = f"perennial_service-{VERSION}.dist-info"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make dist` makes."""
    out = tmp_path_factory.mktemp("release") / "dist"
    build_distributions_into_emptied_folder(out)
    return out


@pytest.fixture(scope="module")
def wheels(release: Path) -> list[Path]:
    return sorted(release.glob("*.whl"))


def list_expected_sources() -> set[str]:
    """Return the files of the service that a wheel must have, as they lie in the repository."""
    found: set[Path] = set()
    for folder in ("api", "core", "migrations", "perennial_service", "worker"):
        found |= {*(ROOT / folder).rglob("*.py")}
    found |= {ROOT / "tools" / f"{name}.py" for name in TOOLS}
    found |= {*(ROOT / "tools" / "compare_methods").rglob("*.py")}
    found |= {path for path in (ROOT / "api" / "static").rglob("*") if path.is_file()}
    found |= {*(ROOT / "api" / "templates").glob("*.html"), ROOT / "migrations/script.py.mako"}
    found |= {ROOT / "core/learning/networks/backbones/timm_weights.json"}
    found |= {*(ROOT / "core/packaged").glob("*.json"), *(ROOT / "core/packaged").glob("*.saf*")}
    found |= {path for path in (ROOT / "core/packaged/pictures").iterdir() if path.is_file()}
    return {path.relative_to(ROOT).as_posix() for path in found} | list_expected_guide()


def list_expected_guide() -> set[str]:
    """Return the files of the guide: a page for each document, its pictures, and how it looks."""
    pages = {
        place.replace("README.md", "index.md").replace(".md", ".html")
        for place in find_guide_documents().values()
    }
    looks = {"guide.css", "icon.svg", "search.js", "search-index.js"}
    return {f"api/built_guide/{name}" for name in pages | looks}


def test_a_release_has_these_files_with_their_sums(release: Path) -> None:
    names = [f"{name}-{VERSION}{end}" for name in ("perennial_service", "perennial_client")
             for end in (".tar.gz", "-py3-none-any.whl")]  # fmt: skip
    beside = ["THIRD_PARTY_NOTICES.md", "constraints.txt"]
    assert {path.name for path in release.iterdir()} == {*names, *beside, "SHA256SUMS"}
    done = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=release, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert len((release / "SHA256SUMS").read_text().splitlines()) == len(names) + len(beside)


def test_the_wheel_has_one_package_with_all_that_the_service_needs(release: Path) -> None:
    with zipfile.ZipFile(release / f"perennial_service-{VERSION}-py3-none-any.whl") as wheel:
        names = {name for name in wheel.namelist() if not name.startswith(f"{INFO}/")}
        texts = {name for name in wheel.namelist() if name.startswith(f"{INFO}/licenses/")}
        assert wheel.read(f"{INFO}/top_level.txt").decode().split() == ["perennial_service"]
    own = {name.removeprefix("perennial_service/") for name in list_expected_sources()}
    assert names == {f"perennial_service/{name}" for name in own}
    licences = {"LICENSE", "NOTICE", "THIRD_PARTY_NOTICES.md"}
    assert texts == {f"{INFO}/licenses/{name}" for name in licences}


def test_the_source_distribution_has_the_same_sources_and_no_tests(release: Path) -> None:
    with tarfile.open(release / f"perennial_service-{VERSION}.tar.gz") as archive:
        names = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    beside = {"LICENSE", "NOTICE", "THIRD_PARTY_NOTICES.md", "README.md", "pyproject.toml",
              "setup.py", "MANIFEST.in", "alembic.ini", "constraints.txt"}  # fmt: skip
    written = {name for name in names if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    assert names - written == list_expected_sources() | beside


def test_the_wheel_of_the_client_has_its_modules_its_types_and_its_licence(release: Path) -> None:
    with zipfile.ZipFile(release / f"perennial_client-{VERSION}-py3-none-any.whl") as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        licence = wheel.read(f"perennial_client-{VERSION}.dist-info/licenses/LICENSE")
    modules = {*(ROOT / "client" / "perennial").rglob("*.py")}
    expected = {path.relative_to(ROOT / "client").as_posix() for path in modules}
    assert names == expected | {"perennial/py.typed"}
    assert licence == (ROOT / "LICENSE").read_bytes()


def test_the_metadata_names_the_client_and_the_commands(release: Path) -> None:
    with zipfile.ZipFile(release / f"perennial_service-{VERSION}-py3-none-any.whl") as wheel:
        fields = email.message_from_bytes(wheel.read(f"{INFO}/METADATA"))
        points = wheel.read(f"{INFO}/entry_points.txt").decode()
    assert fields["Version"] == VERSION
    assert f"perennial-client=={VERSION}" in fields.get_all("Requires-Dist", [])
    assert all(f"{name} = {target}" in points for name, target in NAMED.items())


@pytest.mark.parametrize("name", ["service", "client"])
def test_the_wheels_pass_their_checker(release: Path, name: str) -> None:
    config = ROOT / ("" if name == "service" else name) / "pyproject.toml"
    wheel = next(release.glob(f"perennial_{name}-*.whl"))
    command = [sys.executable, "-m", "check_wheel_contents", "--config", str(config), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def make_environment(home: Path) -> Path:
    """Make an empty environment, and return its Python."""
    venv.create(home, with_pip=False)
    return home / "bin" / "python"


def install_packages(python: Path, *arguments: str | Path) -> None:
    command = [*PIP, "--python", str(python), "install", "-q", *map(str, arguments)]
    subprocess.run(command, check=True)


def run_journey(python: Path, folder: Path, *options: str) -> str:
    """Run the journey from an unrelated folder, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-P", str(JOURNEY), str(python.parent), *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


@pytest.fixture(scope="module")
def installed(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheels beside their requirements.

    These are those of the tests' environment, where editable installations do not count: only a
    site's own folder has its `.pth` files read.
    """
    home = tmp_path_factory.mktemp("installed") / "venv"
    python = make_environment(home)
    (site,) = (home / "lib").glob("python*/site-packages")
    (site / "requirements.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    install_packages(python, "--no-deps", "--no-index", *wheels)
    ours = {"perennial", "perennial_service", f"perennial_client-{VERSION}.dist-info", INFO}
    assert {path.name for path in site.iterdir()} == {*ours, "requirements.pth"}
    return python


def test_the_wheels_are_imported_and_migrate_a_database(installed: Path, tmp_path: Path) -> None:
    (site,) = installed.parents[1].glob("lib/python*/site-packages")
    look = (
        "import perennial_service, perennial; print(perennial_service.FOLDER, perennial.__file__)"
    )
    done = subprocess.run([installed, "-c", look], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [f"{site}/perennial_service", f"{site}/perennial/__init__.py"]
    command = [installed.with_name("perennial"), "migrate"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "perennial-data" / "perennial.db").is_file()


@pytest.mark.campaign  # the test above starts less; each release runs the whole journey
def test_the_wheels_learn_and_predict(installed: Path, tmp_path: Path) -> None:
    assert f"perennial, version {VERSION}" in run_journey(installed, tmp_path, "--short")


@pytest.fixture
def broker() -> Iterator[str]:
    server = RedisServer()
    server.start()
    yield server.url
    server.close()


@pytest.mark.campaign
@pytest.mark.services("redis")
def test_the_wheels_install_with_all_requirements_in_an_empty_environment(
    wheels: list[Path], release: Path, tmp_path: Path, broker: str
) -> None:
    python = make_environment(tmp_path / "venv")
    install_packages(python, "-c", release / "constraints.txt", *wheels)
    subprocess.run([*PIP, "--python", str(python), "check"], check=True)
    run_journey(python, tmp_path, "--broker", broker)


@pytest.mark.campaign
def test_a_package_index_would_take_the_distributions(release: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv")
    # twine brings a keyring, which the tests' environment must not have.
    install_packages(python, "twine==7.0.0")
    files = [*release.glob("*.whl"), *release.glob("*.tar.gz")]
    command = [python, "-m", "twine", "check", "--strict", *files]
    subprocess.run(command, check=True)


def test_leftovers_of_other_builds_are_not_among_the_sources_of_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {"api/app.py", "client/pyproject.toml", "setup.py"}
    leftovers = {
        "api/__pycache__/app.pyc",
        "api/built_guide/left.html",
        "client/build/lib/left.py",
        "client/perennial_client.egg-info/SOURCES.txt",
    }
    for name in sources | leftovers:
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).touch()
    monkeypatch.setattr(distributions, "ROOT", tmp_path / "checkout")
    copy = tmp_path / "copy"
    distributions._copy_checkout_files(("api", "client", "setup.py"), copy)
    copied = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert copied == sources


@pytest.mark.campaign
def test_a_checkout_with_leftovers_of_other_builds_gives_the_same_wheel(
    release: Path, tmp_path: Path
) -> None:
    checkout, out = tmp_path / "checkout", tmp_path / "out"
    ignored = shutil.ignore_patterns("__pycache__", ".*", "tests", "dist", "perennial-*")
    shutil.copytree(ROOT, checkout, ignore=ignored)
    left = checkout / "build" / "lib" / "perennial_service" / "core" / "left.py"
    left.parent.mkdir(parents=True)
    left.touch()
    (checkout / "api" / "built_guide").mkdir(exist_ok=True)
    (checkout / "api" / "built_guide" / "left.html").touch()
    (checkout / "perennial_service.egg-info").mkdir(exist_ok=True)
    (checkout / "perennial_service.egg-info" / "SOURCES.txt").write_text("tools/house.py\n")
    subprocess.run(
        [sys.executable, "-m", "tools.release.distributions", "--wheels", "--out", str(out)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        check=True,
    )
    found = [_list_names(next(folder.glob("perennial_service-*.whl"))) for folder in (release, out)]
    assert found[0] == found[1]


def _list_names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())
