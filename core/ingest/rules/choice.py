"""Decide whether the names of class folders are labels, and what settles it where they only say where files lie."""

from collections.abc import Mapping, Sequence

from core.ingest.rules import label_files
from core.ingest.rules.builder import MOST_NOTES, Builder
from core.ingest.rules.entries import ReadingOptions, Remedy, RuleError
from core.ingest.rules.levels import Known, Levels
from core.ingest.rules.names import CSV_NAME, is_image, normal_label, show
from core.ingest.rules.sentences import count, counted, listed
from core.ingest.rules.tables import suggest_pattern
from core.ingest.rules.words import is_container, part_of, parts_of_classes


class Choice:
    """Decision whether the names of class folders are labels, and what settles it where they say nothing."""

    def __init__(
        self,
        builder: Builder,
        kept: Sequence[int],
        options: ReadingOptions,
        levels: Levels,
        known: Known,
        found: Mapping[str, int],
    ) -> None:
        self._builder, self._kept, self._options = builder, kept, options
        self._levels, self._known, self._found = levels, known, found

    def settle(self) -> dict[str, str]:
        """Folder → its label, where that is not the folder's own name.

        Raises RuleError where the folders may be mere containers.
        """
        plan, found = self._builder.plan, self._found
        if self._options.one_class and len(found) > 1:
            raise RuleError(
                f"one_class=true was asked for, and the batch has {count(len(found), 'class', 'classes')}: "
                f"{counted(found)}. Leave the option out.",
                "labels",
            )
        containers = sorted(name for name in found if is_container(name))
        looks = label_files.find_label_files(self._builder.names, self._kept)
        whole = [look for look in looks if not look.is_aside]
        is_unclear = len(containers) == len(found) or (len(found) == 1 and bool(whole))
        if is_unclear and self._options.layout != "folders":
            if self._options.one_class:
                (name,) = found
                return {name: normal_label(self._one_label())}
            if not self._is_known():
                raise self._asked(looks)
        if len(found) > 1:
            plan.warnings += _said_of_classes(containers, bool(self._levels.parts))
        halves = parts_of_classes(found)
        if halves:
            plan.warnings.append(
                f"The folders {listed(halves, 4)} were taken as classes of their own. If they are parts of one class, "
                "send train/<class>/… and test/<class>/…."
            )
        if whole and not self._builder.has_passed_table:
            files = "; ".join(map(str, whole[:3]))
            plan.warnings.append(
                f"Classes were read from folders, and no label file: {files}. To read labels from a file, name it with "
                "-o table=FILE (in a request ?table=FILE)."
            )
        return {}

    def _is_known(self) -> bool:
        """Return whether the model knows the folders as classes: then they are."""
        labels = {normal_label(name) for name in self._found}
        if not labels <= set(self._known()):
            return False
        self._levels.decided_by |= labels
        return True

    def _one_label(self) -> str:
        """The folder that names the one class: the deepest that is no container."""
        (name,) = self._found
        above = [*self._levels.passed, name]
        return next((folder for folder in reversed(above) if not is_container(folder)), name)

    def _asked(self, looks: Sequence[label_files.LabelFile]) -> RuleError:
        found = self._found
        images = count(sum(found.values()), "image")
        ways = []
        if len(found) == 1:
            (name,) = found
            label = normal_label(self._one_label())
            where = show("/".join([*self._levels.passed, name]))
            what = (
                f"{images} lie in one folder {where}"
                if images != "1 image"
                else f"1 image lies in the folder {where}"
            )
            ways = [Remedy("one_class", "true", f"Read all {images} as one class {show(label)}")]
            other = f", or with -o layout=folders to call it {show(name)}" if label != name else ""
            settled = (
                "If they are all of one class, say so with -o one_class=true (in a request ?one_class=true), which "
                f"calls it {show(label)}{other}."
            )
        else:
            what = f"{images} lie in folders whose names say where files lie, not what is in them ({counted(found)})"
            ways = [Remedy("layout", "folders", f"Read {listed(sorted(found), 3)} as classes")]
            settled = (
                "If the folders are the classes all the same, say so with -o layout=folders (in a request "
                "?layout=folders)."
            )
        named, by_names = offer_pattern(self._builder.names, self._kept)
        ways += named
        beside = f"; {looks[0]}" if looks else ""
        more = f", and so do {count(len(looks) - 1, 'other file')}" if len(looks) > 1 else ""
        advice = looks[0].advice if looks else ""
        return RuleError(
            f"The batch has no labels that are sure: {what}{beside}{more}.{advice} Put the images of each class in a "
            f"folder of its name, or send their labels as {CSV_NAME} with the first line path,label. {settled}"
            f"{by_names}",
            "labels",
            ways,
        )


def _said_of_classes(containers: Sequence[str], has_parts: bool) -> list[str]:
    """Classes that are called like parts or containers: right beside other classes, and said."""
    called_parts = [] if has_parts else [name for name in containers if part_of(name)]
    others = [name for name in containers if name not in called_parts]
    said = [
        f"The folder {show(folder)} was taken as a class. For a training part and a test part, send "
        "train/<class>/… and test/<class>/…."
        for folder in called_parts
    ][:MOST_NOTES]
    if others:
        taken = "s {} were taken as classes" if len(others) > 1 else " {} was taken as a class"
        said.append(f"The folder{taken.format(listed(others))}, like the folders beside.")
    return said


def offer_pattern(names: Sequence[str], kept: Sequence[int]) -> tuple[list[Remedy], str]:
    """The remedy and the sentence that offer to take labels from names of files, where nearly all fit a pattern."""
    pattern = suggest_pattern(names, [i for i in kept if is_image(names[i])])
    if not pattern:
        return [], ""
    remedy = Remedy("names_pattern", pattern, f"Take the labels from the names of the files, {pattern}")
    return [
        remedy
    ], f" If the names of the files begin with the labels, -o names_pattern='{pattern}' takes them."
