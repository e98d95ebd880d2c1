"""A folder of class folders, with train, test and validation folders above them or without.

What is a part, a class or left out is decided by the service's own rules (`perennial.pack.rules`), so that the batch is
the one that an archive of the folder would be. Names stay as they are; where they alone would not say all of it to the
service, labels go along as a list.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

from perennial.pack.csv_file import MOST_ENTRIES, read_given, read_table, say_left_out
from perennial.pack.errors import PackError, Undecided
from perennial.pack.files import FileImages, Root
from perennial.pack.images import Image
from perennial.pack.name_patterns import match_table
from perennial.pack.names import normal, wrong_path
from perennial.pack.rules.entries import ReadingOptions, RuleError
from perennial.pack.rules.plan import IGNORED, LEFT_BEHIND, Plan, Read, plan_batch, plan_table
from perennial.pack.text import count, listed, show

_EXAMPLES = 3


class FolderImages(FileImages):
    """The images of class folders, or those that a label table beside them names."""

    def __init__(
        self,
        folder: Path,
        *,
        layout: str = "auto",
        one_class: bool = False,
        classes: str = "",
        max_bad: float | str = "",
        image: str = "",
        label: str = "",
        table: str = "",
        names_pattern: str = "",
        known_classes: Collection[str] = (),
        allow_outside: bool = False,
    ) -> None:
        """List the folder; no image is read.

        Args:
            layout: `folders` takes folder names as classes whatever lies beside them.
            one_class: all images are of one class.
            classes: the level of folders that names the classes, as `level:1`.
            max_bad: the share of bad entries of a label table up to which it is read.
            image: the column of images of a label table.
            label: its column of labels.
            table: the file that is the label table, where several may be.
            names_pattern: labels stand in the names of files, as `{label}_{number}` says, or a regular expression whose
                group `label`, or first, is the label.
            known_classes: the labels that the model knows, which decide where names alone do not.
            allow_outside: follow links that leave the folder.

        Raises PackError; Undecided where one of the options is needed.
        """
        super().__init__(f"the folder {show(folder.name or folder)}", folder)
        given = {"layout": layout, "one_class": one_class, "classes": classes, "max_bad": max_bad}
        options = read_given(
            {**given, "image": image, "label": label, "table": table, "names_pattern": names_pattern}
        )
        root = Root(folder, allow_outside)
        names = list(root.walk())
        plan = plan_folder(
            names,
            options,
            lambda number: read_table(Path(root.path(names[number]))),
            known_classes,
            show(folder),
        )
        for name, number, is_test in zip(names, plan.of, plan.test, strict=True):
            if number != IGNORED:
                self._add(
                    name, plan.classes[number], ("test" if is_test else "train") if plan.has_parts else ""
                )
        _refuse_twins([row.name for row in self.rows])
        self.listed = not names_say_all(plan, self.rows)
        self.warnings += say_plan(plan, self.listed)
        if root.hidden:
            self.warnings.append(
                f"{count(len(root.hidden), 'hidden folder')} left out: {listed(root.hidden, _EXAMPLES)}."
            )

    def _add(self, name: str, label: str, part: str) -> None:
        wrong = wrong_path(name)
        if wrong:
            raise PackError(f"{show(name)} {wrong}, and the service would refuse the batch. Rename it.")
        self.add_file(name)
        self.rows.append(Image(name, label, part))


def plan_folder(
    names: Sequence[str], options: ReadingOptions, read: Read, known_classes: Collection[str], where: str
) -> Plan:
    """Plan how the files of a folder are read, wherever it is; `where`: what it is called in a sentence.

    Raises PackError; Undecided where an option is needed.
    """
    own = [normal(name) for name in names]
    pattern = options.names_pattern
    try:
        if pattern and "{label}" not in pattern:
            return plan_table(own, options, match_table(pattern, list(names)))
        return plan_batch(own, options, read, lambda: known_classes, most_entries=MOST_ENTRIES)
    except RuleError as error:
        raise (Undecided if error.remedies else PackError)(f"{where}: {error}") from error


def names_say_all(plan: Plan, rows: Sequence[Image]) -> bool:
    """Return whether the service reads the same classes and parts from the names alone, without what is left out."""
    if plan.kind not in ("folders", "split"):
        return False
    try:
        sent = plan_batch([normal(row.name) for row in rows], ReadingOptions(), _nothing)
    except RuleError:
        return False
    labels = [sent.classes[number] if number != IGNORED else None for number in sent.of]
    return labels == [row.label for row in rows] and sent.test == bytes(row.part == "test" for row in rows)


def say_plan(plan: Plan, is_listed: bool) -> list[str]:
    """List what is left out, and what a person should look at; with labels in a list also what the names would say."""
    said = []
    for reason, number in plan.reasons.items():
        if reason != LEFT_BEHIND:
            examples = [path for path, why in plan.ignored_files if why == reason][:_EXAMPLES]
            more = f" and {number - len(examples):,} more" if number > len(examples) else ""
            named = f": {listed(examples)}{more}" if examples else ""
            said.append(f"{count(number, 'file')} left out ({reason}){named}.")
    said += plan.warnings
    said += say_left_out(plan.bad_entries)
    if is_listed:
        said += [f"{note[0].upper()}{note[1:]}." for note in plan.notes if "ignored" not in note]
    return said


def _nothing(number: int) -> bytes:
    raise LookupError(number)  # of images alone nothing is read


def _refuse_twins(names: list[str]) -> None:
    """Raise PackError for two names that the service takes for one: composed and decomposed letters."""
    seen: set[str] = set()
    for name in names:
        if not name.isascii():
            if normal(name) in seen:
                raise PackError(
                    f"{show(name)} is there twice, its letters composed and decomposed. Rename one."
                )
            seen.add(normal(name))
