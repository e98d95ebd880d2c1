"""Files beside an ONNX graph: labels of its outputs, its inputs, and a README with code to run it.

Everything here is a pure function of the manifest.
"""

from pathlib import Path

from core.contract.architecture import ImageSettings
from core.contract.document import JsonObject
from core.contract.jobs.export_job import (
    INPUT,
    OPSET,
    get_head_output_name,
    get_sure_flag_output_name,
)
from core.contract.manifest import BaseOrigin, Manifest
from core.contract.responses.versions.sure import SureOut
from core.export.image_reader import FIRST, get_image_decoding_version
from core.export.model_card import escape_markdown_inline

_CODE = Path(__file__).parent / "loading" / "onnx_run.py"
_SECOND_CODE = _CODE.with_name("onnx_run_2.py")
_BEGINS = "# The card begins here.\n"
_SECOND_NUMBERS = "size, channels, crop, interpolation = 32, 3, None, None"
_NUMBERS = 'size, side, mode = 32, 32, "RGB"'


def collect_labels_of_graph_outputs(manifest: Manifest) -> dict[str, list[str]]:
    """Return the class labels of each output of an exported graph, in column order."""
    if manifest.scenario == "task":
        return {
            get_head_output_name(head.task): list(head.classes) for head in manifest.heads or []
        }
    return {get_head_output_name(None): list(manifest.classes)} if manifest.classes else {}


def build_graph_signature(manifest: Manifest, sure: SureOut | None = None) -> JsonObject:
    """Describe the inputs and outputs of an exported graph for `config.json`.

    Args:
        manifest: the version's manifest.
        sure: threshold of sure answers; None if its model promises nothing.
    """
    image = manifest.image
    flags: JsonObject = {}
    if sure is not None and sure["threshold"] is not None:
        heads: list[int | None] = [None]
        if manifest.scenario == "task":
            heads = [head.task for head in manifest.heads or []]
        flags = {
            get_sure_flag_output_name(task): {"dtype": "bool", "shape": ["batch"]} for task in heads
        }
    outputs: JsonObject = {
        name: {"dtype": "float32", "shape": ["batch", len(names)]}
        for name, names in collect_labels_of_graph_outputs(manifest).items()
    }
    return {
        "opset": OPSET,
        "inputs": {
            INPUT: {"dtype": "uint8", "shape": ["batch", image.channels, image.size, image.size]}
        },
        "outputs": {**outputs, **flags},
    }


def render_onnx_readme(manifest: Manifest) -> str:
    """Render the `README.md` of an ONNX export."""
    image, outputs = manifest.image, collect_labels_of_graph_outputs(manifest)
    title = f"{manifest.name or manifest.model} version {manifest.version}"
    by_task = manifest.scenario == "task"
    readme_lines = [
        f"# {escape_markdown_inline(title)} as ONNX",
        "",
        "A version of an image classifier, exported by Perennial. It runs wherever ONNX Runtime "
        "does.",
        "",
        "| | |",
        "| --- | --- |",
        f"| input | `{INPUT}`: uint8, [batch, {image.channels}, {image.size}, {image.size}], any "
        "batch; values 0 to 255 |",
        f"| output | {_describe_graph_outputs(outputs, by_task)} |",
        f"| operators | opset {OPSET} |",
        *_build_weights_origin_row(manifest.base),
        "",
        "Values are normalised inside, and probabilities of an output sum to 1. `labels.json` has "
        "the labels of each output in the order of its columns, `config.json` what the version was "
        "made from.",
        "",
        "## Run it",
        "",
        *_describe_onnx_example_code(image),
        "",
        "```python",
        build_onnx_prediction_code(image).rstrip(),
        "```",
        "",
    ]
    if get_image_decoding_version(image) == FIRST:
        readme_lines += ["Images of 16 or 32 bits a channel are to be saved with 8 first.", ""]
    return "\n".join(readme_lines)


def build_onnx_prediction_code(image: ImageSettings) -> str:
    """Build Python code for the ONNX model card that predicts the classes of an image file."""
    if get_image_decoding_version(image) != FIRST:
        text = _SECOND_CODE.read_text(encoding="utf-8").partition(_BEGINS)[2]
        numbers = f"{image.size}, {image.channels}, {image.crop!r}, {image.interpolation!r}"
        return _replace_single_occurrence(
            text, _SECOND_NUMBERS, _SECOND_NUMBERS.replace("32, 3, None, None", numbers)
        )
    text = _CODE.read_text(encoding="utf-8").partition(_BEGINS)[2]
    mode = "RGB" if image.channels == 3 else "L"
    text = _replace_single_occurrence(
        text,
        _NUMBERS,
        f'size, side, mode = {image.size}, {_compute_resized_short_side(image)}, "{mode}"',
    )
    if image.interpolation is not None:
        text = _replace_single_occurrence(
            text, "Resampling.BILINEAR", f"Resampling.{image.interpolation.upper()}"
        )
    return text


def _describe_onnx_example_code(image: ImageSettings) -> list[str]:
    """Describe an ONNX export's example code and its requirements in sentences."""
    if get_image_decoding_version(image) == FIRST:
        return [
            "Needs onnxruntime, pillow and numpy. Save it as `run.py` beside `model.onnx`; `python "
            "run.py photo.jpg` prints the most probable labels. The photo is turned, resized and "
            "cropped as Perennial does it."
        ]
    return [
        "Needs onnxruntime, pillow, numpy and, for HEIC, pi-heif. Save it as `run.py` beside "
        "`model.onnx`; `python run.py photo.jpg` prints the most probable labels. `image_file.py` "
        "is Perennial's own reader: it turns, resizes and crops the photo, and brings its colours "
        "to sRGB."
    ]


def _compute_resized_short_side(image: ImageSettings) -> int:
    """Return the length of an image's shorter side after resizing, in pixels."""
    if image.crop is not None:
        # int() cuts off, and the quotient may lie just below a whole number.
        return int(image.size / image.crop + 1e-9)
    return image.size if image.size <= 96 else round(image.size * 256 / 224)


def _describe_graph_outputs(outputs: dict[str, list[str]], by_task: bool) -> str:
    """Describe the outputs of an exported graph for its model card."""
    if by_task:
        return "one for each task, " + ", ".join(
            f"`{name}`: float32 [batch, {len(names)}]" for name, names in outputs.items()
        )
    return "".join(f"`{name}`: float32, [batch, {len(names)}]" for name, names in outputs.items())


def _build_weights_origin_row(base: BaseOrigin | None) -> list[str]:
    """Render the model card's table row with origin and licence of the initial weights, if
    known.
    """
    if base is None or base.name is None:
        return []
    source = f"{base.name} of {base.repository}" if base.repository else base.name
    licence = base.licence or "not named by their publisher"
    return [
        f"| began from | {escape_markdown_inline(source)}; licence: {escape_markdown_inline(licence)} |"
    ]


def _replace_single_occurrence(text: str, old: str, new: str) -> str:
    # A file that was reworded would otherwise give code that silently reads images differently.
    assert text.count(old) == 1, f"core/export/loading/onnx_run.py has no {old!r}"
    return text.replace(old, new)
