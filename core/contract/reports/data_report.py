"""Findings about a batch's images before they are learned.

They cover balance, near duplicates, shift, and labels that look wrong.
"""

from typing import Literal

from typing_extensions import TypedDict

FindingKind = Literal["balance", "conflicts", "near_duplicates", "suspects", "shift", "would_say"]


class ClassCount(TypedDict):
    """Numbers of training and held-out images of one class in a batch.

    `held_out` of them are not learned from; null: not decided before the batch is decoded.
    """

    images: int
    held_out: int | None


class NearPair(TypedDict):
    """A pair of images that look the same; a path is null if it is not retained."""

    path: str | None
    like: str | None


class Near(TypedDict):
    """Near duplicates within a batch: the number of images that have one, and the first 20 pairs."""

    count: int
    examples: list[NearPair]


class NearEarlier(TypedDict):
    """Near duplicates of the batch's images in one earlier task.

    `held_out` of them are used for training and resemble a held-out image of that task, so that the
    accuracy on it is overestimated.
    """

    task: int
    count: int
    held_out: int
    examples: list[NearPair]


class NearDuplicates(TypedDict):
    """Near duplicates of a batch's images: images that look the same although their bytes differ.

    - `within`: images that repeat an earlier one of the batch.
    - `held_out`: held-out images that are in the training part, too, equal bytes included.
    - `not_compared`: earlier tasks without hashes.
    - `complete`: whether the search could not miss any pair.
    """

    within: Near
    held_out: Near
    earlier: list[NearEarlier]
    not_compared: list[int]
    complete: bool


class ClassShift(TypedDict):
    """Shift of one known class: whether its new images differ from those learned before.

    - `images`, `earlier`: numbers of new and earlier images that were compared.
    - `outside`: share of the new ones further from the class's mean than 95 % of the earlier
      held-out ones; about 0.05 without a shift.
    """

    label: str
    images: int
    earlier: int
    outside: float


class Shift(TypedDict):
    """Distribution shift: a batch's new images compared with the held-out images of earlier tasks.

    The comparison uses the features of the version that the job starts from.

    - `of`: known classes, each with as many images on both sides. Without known classes it is all
      images, which are expected to differ.
    - `mmd2`: squared maximum mean discrepancy of features.
    - `p`: probability of such a difference without a shift, in content (`p_features`) or in
      brightness and contrast (`p_light`).
    """

    of: Literal["known classes", "all images"]
    images: int
    mmd2: float
    p: float
    p_features: float
    p_light: float
    per_class: list[ClassShift]


class Suspect(TypedDict):
    """A training image whose label looks wrong, and the class that it looks like.

    - `index`: position in the training part.
    - `score`: ratio of the suggested label's probability to that of the given label.
    """

    index: int
    path: str | None
    label: str
    suggested: str
    score: float


class WouldSay(TypedDict):
    """Predictions of the parent version for the images of a new class.

    - `said`: the most frequent prediction.
    - `images`: number of images with that prediction, out of `of`.
    - `surely`: those of them with a probability of `least` or more.
    """

    label: str
    said: str
    images: int
    surely: int
    of: int
    least: float
    version: int


class Mislabelled(TypedDict):
    """A known class whose labels in the batch look swapped or wrong.

    - `said`: the version that the job starts from predicts this class for `images` of the `of`
      training images with the label.
    - `right`: of `held_out` held-out images of the class in earlier tasks, it gets this many right.
    """

    label: str
    said: str
    images: int
    of: int
    right: int
    held_out: int
    version: int


class Finding(TypedDict):
    """A finding about a batch's data, as a sentence for a person.

    `holds`: a job whose recipe says `"data_report": "hold"` is held because of it.
    """

    kind: FindingKind
    holds: bool
    text: str


class DataReport(TypedDict, total=False):
    """Report on a batch's images (duplicates, shift, suspect labels), as far as computed. Lists are
    bounded, counts are complete.

    - `imbalance_ratio`: images of the largest class for one of the smallest.
    - `few`: classes with fewer than 5 images, the first 100.
    - `conflicts`: images whose pixels have two classes.
    - `shift`: null if too few images are retained.
    - `would_say`: new classes, the 100 that are most surely taken for a known one, from at most
      1,000 images.
    - `suspects`: the 100 most suspicious of `suspects_count`, among `examined` training images.
    - `mislabelled`: known classes, the first 100, most of whose images the version that the job
      starts from predicts as another class, although it knows the class from earlier tasks.
    - `cost_s`: seconds that the analysis took.
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
    mislabelled: list[Mislabelled]
    findings: list[Finding]
    cost_s: float
