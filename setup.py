"""Packages of the wheel: the folders of the service, all within `perennial_service`.

Everything else is in pyproject.toml, which cannot rename the packages that it finds.
"""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

NAME = "perennial_service"
FOLDERS = ("api", "core", "migrations", "tools", "worker")
DEVELOPERS = {
    *("advice_table", "client_sync", "client_types", "command_line", "demo", "digits", "house"),
    *("picture_kinds", "timm_weights", "vendor"),
}
"""Modules of `tools` that work on a checkout, and are left out."""


class BuildService(build_py):
    """Builds the packages without the modules in `DEVELOPERS`."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Return (package, module, file) of the modules of a package."""
        modules: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [one for one in modules if package != f"{NAME}.tools" or one[1] not in DEVELOPERS]


setup(
    packages=[
        NAME,
        *(
            f"{NAME}.{name}"
            for name in find_packages(
                include=[pattern for folder in FOLDERS for pattern in (folder, f"{folder}.*")],
                exclude=[
                    "tools.guide",
                    "tools.release",
                    "tools.release.*",
                    "tools.sample_pictures",
                ],
            )
        ),
        # Folders that Alembic reads, and that are no packages.
        *(f"{NAME}.migrations", f"{NAME}.migrations.versions"),
    ],
    package_dir={NAME: NAME, **{f"{NAME}.{folder}": folder for folder in FOLDERS}},
    cmdclass={"build_py": BuildService},
)
