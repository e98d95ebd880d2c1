"""Valid plans, and errors that name each invalid field."""

from pathlib import Path

import pytest

from bench.experiment.plan import PlanError, PlannedImages, read_plan_file

PLANS = sorted((Path(__file__).parents[3] / "bench" / "experiment" / "plans").glob("*.toml"))
ONE = '[[methods]]\nname = "finetune"\n'


def test_defaults_are_one_order_one_seed_and_everything_moving(plan):
    made = plan(ONE)
    assert (made.orders, made.seeds, made.depths, made.scenarios) == (1, (0,), (5,), ("class",))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("epochs = 3\n" + ONE, "epochs: Extra inputs are not permitted"),
        ("depths = [0, 5]\n" + ONE, "depths.0: Input should be greater than or equal to 1"),
        ('seeds = ["0"]\n' + ONE, "seeds.0: Input should be a valid integer"),
        ('scenarios = ["domain"]\n' + ONE, "scenarios.0: Input should be 'data', 'task' or "
            "'class'"),
        ('scenarios = ["data"]\n' + ONE, "data: digits says neither classes_per_task"),
        ('scenarios = ["class", "data"]\n' + ONE, "scenarios: no data set is for the data "
            "scenario"),
        (ONE + "seeds = [7]", "methods: finetune names scenarios or seeds that are not the plan's"),
        (ONE + ONE, "methods: something is named twice in finetune, finetune"),
        ("seeds = [1, 1]\n" + ONE, "seeds: something is named twice in 1, 1"),
        ('[[methods]]\nname = "a b"', "methods.0.name: String should match pattern"),
        (ONE + 'base = "x"', "methods: finetune names the base 'x', which is not in bases"),
        (ONE + 'joint = true\nrecipe.method = "er"', "methods: finetune is joint: its recipe names "
            "no method"),
        (
            ONE + '[published]\nsource = "x"\nvalues = [{ method = "a", scenario = "task", mean = '
                '1, sd = 1 }]',
            "published: no method is named 'a'",
        ),
        ("orders = = 1", "Invalid value"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(plan, extra, message):
    with pytest.raises(PlanError, match=r"plan\.toml: ") as error:
        plan(extra)
    assert message in str(error.value)


def test_every_wrong_field_has_a_line(plan):
    with pytest.raises(PlanError) as error:
        plan("orders = 0\nepochs = 9\n" + ONE)
    assert len(str(error.value).splitlines()) == 2


def test_a_base_gives_its_architecture_and_must_have_the_images_of_the_stream(plan):
    base = """
        [[methods]]
        name = "full"
        base = "old"
        [[bases]]
        name = "old"
        images = { path = "digits"%s }
        architecture = { name = "mlp", hidden = [9] }
        [[methods]]
        name = "other"
        """
    made = plan(base % "")
    assert [made.get_method_architecture(method)["hidden"] for method in made.methods] == [[9], [8]]
    with pytest.raises(PlanError, match="digits and the base old differ in pad"):
        plan(base % ", pad = 1")


def test_classes_are_numbers_and_ranges_in_the_order_written():
    assert PlannedImages(path="x", classes="7, 0-2").list_chosen_class_numbers(10) == [7, 0, 1, 2]
    assert PlannedImages(path="x").list_chosen_class_numbers(3) == [0, 1, 2]
    for wrong in ("3-1", "a", "1,,2", "-1"):
        with pytest.raises(ValueError, match="is not a number or a range"):
            PlannedImages(path="x", classes=wrong)
    for wrong in ("0-3", "1,1"):
        with pytest.raises(PlanError, match="repeat or go beyond the 3 there are"):
            PlannedImages(path="x", classes=wrong).list_chosen_class_numbers(3)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(PlanError, match=r"no\.toml: No such file"):
        read_plan_file(tmp_path / "no.toml")


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_shipped_plan_is_named_as_its_file(path):
    assert read_plan_file(path).name == path.stem
