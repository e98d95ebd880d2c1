"""The part of a form that compares recipes for a batch: those that fit the model, or a list."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from api.pages.parts.recipe_form import RecipeForm
from api.uploads.batch_request import parse_trial_recipes
from core.contract.jobs.trial import Choose
from core.errors import Invalid
from core.trials.plan import AUTO, TrialsRequest

TRIALS, LISTED, CHOOSE = INPUTS = ("trials", "trials_list", "choose")
"""Names of the inputs: which recipes are compared, the list of them, and who chooses."""
_OF_FORM = "list"
"""Value of `TRIALS` for the recipes in `LISTED`."""
_EXAMPLE = '[{"method": {"name": "analytic", "head": "lda"}}, {"epochs": 5}]'


@dataclass(frozen=True)
class TrialsForm:
    """The recipes to compare as trials, from a form; `asked` is None without trials."""

    asked: TrialsRequest | None = None

    @property
    def request_json(self) -> str:
        """The requested trials as JSON fields of the API's request."""
        if self.asked is None:
            return "{}"
        return json.dumps({"trials": self.asked.recipes, "choose": self.asked.choose})

    @property
    def command_line_options(self) -> str:
        """The requested trials as options of `perennial submit`, after a space; empty without
        trials.
        """
        if self.asked is None:
            return ""
        choose = " --choose manual" if self.asked.choose == "manual" else ""
        return f" --trials {shlex.quote(self._format_recipes())}{choose}"

    @property
    def url_query(self) -> str:
        """The requested trials as URL query parameters, after an ampersand; empty without trials."""
        if self.asked is None:
            return ""
        choose = {"choose": "manual"} if self.asked.choose == "manual" else {}
        return f"&{urlencode({'trials': self._format_recipes(), **choose})}"

    def _format_recipes(self) -> str:
        recipes = self.asked.recipes if self.asked is not None else ()
        return recipes if isinstance(recipes, str) else json.dumps(list(recipes))


NO_TRIALS = TrialsForm()
"""A batch that is learned by one recipe."""


def parse_trials_and_add_form_errors(form: RecipeForm, inputs: Mapping[str, str]) -> TrialsForm:
    """Parse the recipes to compare from a form; add errors to those of the recipe form."""
    if not inputs.get(TRIALS):
        return NO_TRIALS
    choose: Choose = "manual" if inputs.get(CHOOSE) == "manual" else "best"
    text = AUTO if inputs[TRIALS] == AUTO else inputs.get(LISTED, "").strip()
    if not text:
        form.errors[LISTED] = f"is empty; write a list of recipes such as {_EXAMPLE}"
        return NO_TRIALS
    try:
        trials_request = TrialsRequest(parse_trial_recipes(text), choose)
    except Invalid as error:
        form.errors[LISTED] = error.detail
        return NO_TRIALS
    if form.patch:
        form.errors[TRIALS] = (
            "A batch is learned by one recipe or by trials of several. Leave the settings above as "
            "they are, and list them as one of the recipes."
        )
        return NO_TRIALS
    return TrialsForm(trials_request)
