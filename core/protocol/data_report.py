"""What is told of a batch's images before they are learned: balance, near duplicates, shift, labels that look wrong."""

from typing import Literal

from typing_extensions import TypedDict

FindingKind = Literal["balance", "conflicts", "near_duplicates", "suspects", "shift", "would_say"]


class ClassCount(TypedDict):
    """Images of a class; `held_out` of them are not learned from (null: not decided before the batch is decoded)."""

    images: int
    held_out: int | None


class NearPair(TypedDict):
    """An image, and one that looks the same; null: its path is not kept."""

    path: str | None
    like: str | None


class Near(TypedDict):
    """Images with a near duplicate: how many, and the first 20."""

    count: int
    examples: list[NearPair]


class NearEarlier(TypedDict):
    """Images of the batch with a near duplicate in an earlier task.

    `held_out` of them are learned from and resemble a held-out image of that task: its accuracy is flattered.
    """

    task: int
    count: int
    held_out: int
    examples: list[NearPair]


class NearDuplicates(TypedDict):
    """Images that look the same though their bytes differ.

    `within`: images that repeat an earlier one of the batch. `held_out`: held-out images that are in the training part
    too, equal bytes included. `not_compared`: earlier tasks without hashes. `complete`: whether no pair was missed.
    """

    within: Near
    held_out: Near
    earlier: list[NearEarlier]
    not_compared: list[int]
    complete: bool


class ClassShift(TypedDict):
    """A class that the model knows: images compared, and the share of the new ones that lie further from the class's
    mean than 95 % of the earlier held-out ones; without a shift about 0.05."""

    label: str
    images: int
    earlier: int
    outside: float


class Shift(TypedDict):
    """New images beside kept held-out images of earlier tasks, by the features of the version that the job starts from.

    `of`: known classes, each with as many images on both sides; or all images, where no class is known: then other
    images are expected. `mmd2`: squared maximum mean discrepancy of features; `p`: how probable as much
    difference is without a shift, in what images show (`p_features`) or in their brightness and contrast
    (`p_light`).
    """

    of: Literal["known classes", "all images"]
    images: int
    mmd2: float
    p: float
    p_features: float
    p_light: float
    per_class: list[ClassShift]


class Suspect(TypedDict):
    """A training image whose label looks wrong: `index` in the training part, and how many times less
    probable the given label is than the suggested one."""

    index: int
    path: str | None
    label: str
    suggested: str
    score: float


class WouldSay(TypedDict):
    """Images of a new class as the version answers them that the job starts from: `images` of `of` are called `said`,
    more than anything else; `surely` of them with the probability `least` or more."""

    label: str
    said: str
    images: int
    surely: int
    of: int
    least: float
    version: int


class Finding(TypedDict):
    """A sentence for a person. `holds`: a job whose recipe says `"data_report": "hold"` is not learned
    because of it."""

    kind: FindingKind
    holds: bool
    text: str


class DataReport(TypedDict, total=False):
    """What was found, as far as it was looked for. Lists are bounded, counts are whole.

    `imbalance_ratio`: images of the largest class for one of the smallest. `few`: classes with fewer than 5 images, the
    first 100. `conflicts`: images whose pixels have two classes. `shift`: null where too few images are kept to tell.
    `would_say`: of new classes, the 100 that are taken for a known one most surely, from at most 1,000 images.
    `suspects`: the 100 most suspicious of `suspects_count`, among `examined` training images. `cost_s`: seconds that
    the job took to look.
    """

    balance: dict[str, ClassCount]
    imbalance_ratio: float
    few: list[str]
    conflicts: int
    near_duplicates: NearDuplicates
    shift: Shift | None
    suspects: list[Suspect]
    suspects_count: int
    examined: int
    would_say: list[WouldSay]
    findings: list[Finding]
    cost_s: float
