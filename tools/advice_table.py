"""Write `docs/reference/warnings.md`: each warning and advice, its three forms, and the test that
follows it.

    python -m tools.advice_table

`ENTRIES` lists them. A test compares it with the code: each function that names a request or an
option, or that warns, has an entry, and vice versa.
"""

import ast
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "reference" / "warnings.md"
ASKS = re.compile(
    r"(?:GET|POST|PUT|PATCH|DELETE) (?:/v1/|…/)|(?<![\w/])-o "
    r"[a-z_]+=|(?<![\w/`])\?[a-z_]+=|Perennial-Recipe: |perennial [a-z]+ [A-Z]"
)
WARNS = re.compile(
    r"warnings\.(?:append|insert|extend)\Z|\._(?:warn|report_warning)\Z|(?:^|\.)warn\Z"
)
MENTIONS = re.compile(
    r"GET|POST|PUT|PATCH|DELETE|-o[ \"']|\?|Perennial-Recipe|perennial[ \"']|warn|ApiRequestForAdvice"
)
"""Text in every file in whose functions `ASKS` or `WARNS` matches: extend them together. Parsing
only these files saves seconds.
"""
PLACES = ("client/perennial/reading_rules", "core", "worker")
NO_ADVICE = {
    "core/database/sqlite_damage.py:_open_sqlite_read_only",
    "core/learning/training/job.py:_report_warning",
    "core/learning/training/job.py:run_job_phases",
    "core/learning/training/job.py:_record_device_change",
}  # fmt: skip
"""Functions that contain a query or pass a warning on, but write none."""


class AdviceRow(NamedTuple):
    """A row of the reference table of warnings and advice that the service gives.

    Attributes:
        code: its name in the table.
        sources: `file:function` of the functions that write it.
        when: condition under which it appears.
        says: an example of the request it advises, as the API writes it; empty: it advises none.
        test: `file::function` that follows the advice and shows that it helps; else the reason why
            there is none.
    """

    code: str
    sources: tuple[str, ...]
    when: str
    says: str
    test: str


M = "/v1/models/birds"
TELLS = "information only"
FIRST = "tests/e2e/test_first_advice.py::"
FOLLOWED = "tests/e2e/test_advice_followed.py::"
LIFE = "tests/e2e/test_lifecycle.py::"
RULES = "tests/core/ingest/test_rules.py::"
TABLES = "tests/core/ingest/test_tables.py::"
ANY_HELD = "test_a_version_that_forgot_is_mended_by_the_first_request"


def _get_core_learning_path(name: str) -> str:
    return f"core/learning/{name}"


ENTRIES = (
    AdviceRow("held", ("core/lineage/wording.py:describe_requests_to_pass_held_version",),
          "a version lacks tasks that were rolled back",
          f"Learn task 2 again first (POST {M}/tasks/2/relearn) and then this one, or discard it "
          f"(POST {M}/tasks/2/discard).",
          LIFE + "test_a_batch_after_a_rollback_is_told_of_the_missing_task_held_and_settled_by_relearning"),
    AdviceRow("held-first", (), "a version failed a check of its gate: the first request of "
        "`attention`",
          'POST /v1/jobs/job_1/retry {"recipe": {}}', FIRST + ANY_HELD),
    AdviceRow("held-weak", (), "a version learned too little of its batch: the first request of "
        "`attention`",
          'POST /v1/jobs/job_1/retry {"recipe": {"epochs": 50}}',
          FIRST + "test_a_version_that_learned_too_little_is_mended_by_the_first_request"),
    AdviceRow("missing", ("core/lineage/wording.py:describe_requests_for_missing_task",
                        "core/lineage/wording.py:_build_task_api_request"),
          "a version lacks a task that was rolled back or skipped",
          f"Learn it again with POST {M}/tasks/2/relearn, or discard it with POST "
          f"{M}/tasks/2/discard.",
          LIFE + "test_a_batch_after_a_rollback_is_told_of_the_missing_task_held_and_settled_by_relearning"),
    AdviceRow("pinned", ("core/lineage/wording.py:explain_pinned_production",
                     "core/versions/aliases.py:_production_move_to_json",
                     "core/models/models.py:model_to_json"),
          "a person moved production to a version, so it does not follow later ones",
          f"POST {M}/aliases/production/follow lets it follow later ones.",
          LIFE + "test_after_a_rollback_later_batches_build_on_each_other_until_production_is_told_to_follow"),
    AdviceRow("passes-now", ("core/versions/aliases.py:_move_production_and_rejudge_versions",),
        "a held version was judged "
        "again and now passes",
          "", TELLS),
    AdviceRow("biased-head", ("core/publishing/biased_head.py:_format_biased_head_advice",
          "core/publishing/biased_head.py:_build_biased_head_remedy_request"),
          "features tell classes apart better than the head by more than 5 points and chance",
          f"Send the next batch with `rebalance`: POST {M}/tasks with Perennial-Recipe: "
          '{"rebalance": {"epochs": 5}}.',
          FOLLOWED + "test_rebalancing_the_next_batch_makes_up_for_a_biased_head"),
    AdviceRow("collapsed", ("core/publishing/version_warnings.py:build_feature_collapse_warning",
          "core/publishing/version_warnings.py:_describe_steps_after_feature_collapse"),
          "features lost more than 10 points against those of the best ancestor",
          f'Roll production back to it with POST {M}/aliases/production/rollback {{"version": 2, '
          f'"reason": "…"}}.',
          FOLLOWED + "test_going_back_from_collapsed_features_brings_the_accuracy_back"),
    AdviceRow("rebase", ("core/publishing/advice.py:_advise_move_to_larger_base",),
          "accuracy fell over three versions, or a model on a larger base does better",
          f'Move the model to the base for photos: POST {M}/rebase {{"base": '
          f'"perennial/efficientnet-lite0"}}.',
          "tests/e2e/test_rebase.py::test_a_model_moves_to_another_base_after_both_were_compared_though_a_job_dies"),
    AdviceRow("look-alike", ("core/lineage/wording.py:describe_class_merge_request",),
          "a batch has a class whose name looks like that of another class",
          f'Once both are learned, merge them with POST {M}/edits {{"operations": [{{"merge": '
          f'{{"from": ["dgo", "dog"], "into": "dog"}}}}]}}.',
          "tests/ui/test_edits.py::test_classes_are_merged_after_a_plan_by_the_page"),
    AdviceRow("confused", ("core/publishing/advice.py:_advise_more_images_of_classes",
                       "core/publishing/advice.py:_advise_on_worst_class"),
          "a version confuses two classes, or accuracy falls and the model has the larger base",
          f"Send as many more images as it has learned, 40 of cat and 44 of dog: POST {M}/tasks.",
          FOLLOWED + "test_more_images_of_classes_tell_them_apart_better"),
    AdviceRow("data-held", ("worker/attempts/attempt.py:_reject_for_findings",
          "core/learning/reports/data_report.py:log_data_findings_or_hold_batch"),
          "a recipe with `data_report` \"hold\" held doubtful images",
          'Learn it as it is: POST /v1/jobs/job_1/retry {"recipe": {"data_report": "warn"}}.',
          "tests/e2e/test_data_report.py::test_what_was_held_is_learned_by_the_retry_that_it_names_and_then_deleted"),
    AdviceRow("conflicts", ("core/ingest/findings/contradictions.py:refuse_unaccepted_label_contradictions",
          "core/ingest/ingest.py:_split_and_write_datasets"),
          "the same pixels have two labels", "To learn it as it is, send it with ?conflicts=keep.",
          "tests/e2e/test_what_a_user_sends.py::"
          "test_copies_and_contradictions_are_named_by_path_and_copies_dropped_if_asked"),
    AdviceRow("bad-images", ("core/ingest/first_look.py:require_enough_readable_images",
                         "core/ingest/report.py:build_decoded_batch_report_and_mask"),
          "more images cannot be decoded than the batch allows", "Mend them, or leave them out "
              "with ?max_bad=0.3.",
          FOLLOWED + "test_damaged_images_are_left_out_by_the_parameter_that_the_refusal_names"),
    AdviceRow("leak", ("core/ingest/report.py:add_held_out_in_training_warning",), "held-out images are in the "
        "training part too", "", TELLS),
    AdviceRow("packed", ("core/ingest/readers/zip.py:_check_entry_kind_and_detect_folder",),
        "an entry is compressed by another "
        "method than deflate",
          "Unpack it, and send the folder, or pack it with zip -r.",
          "not followed: it asks for another program on the sender's machine"),
    AdviceRow("read", ("client/perennial/reading_rules/builder.py:leave_junk_out_and_list_other_files",
                   "client/perennial/reading_rules/by_folders.py:assign_folder_classes",
                   "client/perennial/reading_rules/by_table.py:choose_label_table",
                   "client/perennial/reading_rules/by_table.py:assign_table_labels",
                   "client/perennial/reading_rules/choice.py:_build_unlikely_class_folder_warnings"),
          "labels were read in one of several ways", "", TELLS),
    AdviceRow("layout", ("client/perennial/reading_rules/choice.py:choose_labels_other_than_folder_names",
                     "client/perennial/reading_rules/choice.py:_build_unclear_labels_error",
                     "client/perennial/reading_rules/levels.py:_decide_if_upper_folders_are_classes",
                     "client/perennial/reading_rules/levels.py:_build_ambiguous_levels_error"),
          "folders or files can be read in several ways", "Say so with ?layout=folders.",
          RULES + "test_what_can_be_read_in_several_ways_is_asked_for"),
    AdviceRow("names-pattern", ("client/perennial/reading_rules/choice.py:build_file_name_pattern_remedy",),
          "file names begin with labels",
          "?names_pattern=%7Blabel%7D_%7Bnumber%7D takes them.",
          TABLES + "test_a_pattern_that_nearly_all_names_fit_is_offered"),
    AdviceRow("label-file", ("client/perennial/reading_rules/label_files.py:unpack_and_submit_advice",),
          "a batch in an archive contains a label file",
          "Unpacked, the command line reads it.",
          "not followed: programs get the command that reads a folder too"),
    AdviceRow("columns", ("client/perennial/reading_rules/tables/columns.py:_refuse_unlikely_labels",
                      "client/perennial/reading_rules/tables/columns.py:_refuse_decimal_labels",
                      "client/perennial/reading_rules/tables/reading.py:_find_table_candidates",
                      "client/perennial/reading_rules/tables/reading.py:_choose_found_table"),
          "a table has several columns that may be the label, or there are several tables",
          "If it is the label, say ?label=width; to take folders as classes, ?layout=folders.",
          TABLES + "test_what_an_option_settles_is_a_remedy"),
    AdviceRow("bad-entries", ("client/perennial/reading_rules/tables/resolving.py:_require_few_unreadable_entries",),
          "more entries of a label table cannot be read than the batch "
          "allows", "Leave them out with ?max_bad=0.3.",
          "tests/api/uploads/test_upload.py::test_more_bad_entries_are_taken_where_the_request_allows_them"),
    AdviceRow("memory-lost", (_get_core_learning_path("evaluation/ancestors.py:load_method_state_of_parent"),),
          "a batch is learned by another method, or memory was deleted", "", TELLS),
    AdviceRow("one-class", (_get_core_learning_path("training/job.py:_prepare_new_run_and_measure_ancestors"),
        ), "a model knows only one class",
          "Send a batch with another class.",
          "tests/e2e/test_gate.py::test_a_first_batch_of_one_class_is_published_and_not_promoted"),
    AdviceRow(
        "merge", (_get_core_learning_path("training/merge.py:merge_trained_with_starting_weights"),),
        "weights were merged, or could not be", "", TELLS),
    AdviceRow(
        "rebalance", (_get_core_learning_path("training/rebalance.py:build_rebalance_pool"),),
        "the head was rebalanced, or could "
            "not be", "", TELLS
    ),
    AdviceRow("validation", (_get_core_learning_path("training/validation.py:validate_before_first_step"),
                         _get_core_learning_path("methods/analytic.py:begin_task")),
          "the validation part is too small, or nothing uses it", "", TELLS),
    AdviceRow("few-steps", (_get_core_learning_path("methods/dlcft.py:begin_task"),), "an update has few steps for "
        "its method",
          "Take more epochs or a smaller batch_size.", "not followed: minutes of training for each "
              "side"),
    AdviceRow("exemplars", (_get_core_learning_path("methods/replay/icarl.py:end_task"),
          _get_core_learning_path("methods/replay/icarl.py:_compute_and_store_class_means"),
                        _get_core_learning_path("methods/expanding.py:_trim_and_add_exemplars"),
                        _get_core_learning_path("methods/expanding.py:begin_task")),
          "fewer exemplars than classes", "Raise method.exemplars.",
          "not followed: the message is tested in tests/core/learning/methods, its effect is the "
          "method's own"),
    AdviceRow("curvature", (_get_core_learning_path("methods/penalties/ewc_online.py:begin_task"),),
          "the recipe asks for curvature in another form than the stored one", "", TELLS),
    AdviceRow("steep", (_get_core_learning_path("methods/penalties/quadratic.py:_warn_of_steep_penalty"),),
          "a penalty is too steep "
        "for the learning rate", "",
          TELLS),
    AdviceRow("slca", (_get_core_learning_path("methods/slca.py:begin_task"),), (
        "covariances are too wide, or validation "
        "chooses the state"
    ),
          "Set validation to 0.", "not followed: minutes of training for each side"),
    AdviceRow("optimizer", (_get_core_learning_path("optimizers/build.py:load_state"),), "the state of another "
        "optimizer is not used", "",
          TELLS),
    AdviceRow("olor", (_get_core_learning_path("optimizers/olor.py:_limit_rollback_share"),
          _get_core_learning_path("optimizers/rollback.py:report_olor_rollback")),
          "OLOR moves weights back not at all, little or too much", "Set optimizer.olor.iota_total to the sum "
              "that you want.",
          "tests/core/learning/optimizers/test_rollback.py::test_what_the_steps_roll_back_is_the_sum_that_was_asked_for"),
    AdviceRow("no-weights", ("core/recipe/pretrained.py:find_pretrained_weights_of_architecture",
                         "core/bases/pretrained.py:require_pretrained_weights_entry",
                         "core/execution/kinds/fetch.py:_find_pretrained_weights_entry_of_model"),
                             "timm has no weights of "
                             "this name",
          "GET /v1/architectures has the names.", "tests/api/test_recommended_names.py::test_networks_of_timm"),
    AdviceRow("weights-by-hand", ("core/bases/pretrained.py:_explain_manual_weights_upload",
                              "core/execution/kinds/fetch.py:_format_manual_download_advice",
                              "core/lineage/wording.py:describe_fetch_retry_request"),
          "weights cannot be fetched",
          "Put model.safetensors into the data directory of each worker, and send POST "
          "/v1/jobs/job_1/retry.",
          "tests/e2e/test_pretrained.py::test_a_file_that_a_person_put_there_is_taken_where_the_hub_has_nothing"),
    AdviceRow("alias-target", ("core/versions/aliases.py:_build_no_rollback_error",), "an alias cannot go back "
        "further",
          f"PUT {M}/aliases/production can put it on version 1 or 2.",
          LIFE + "test_a_rollback_lands_on_a_version_that_can_answer_and_names_the_classes_that_are_lost"),
    AdviceRow("recipe", ("core/models/models.py:change_model",), "a recipe is weak in a scenario, or loses "
        "memory", "", TELLS),
    AdviceRow("base-fits", ("core/bases/base_advice.py:make_error",
          "core/bases/base_advice.py:format_model_creation_request",
                        "core/bases/base_advice.py:_advise_on_network_stem",
                        "core/bases/base_advice.py:explain_architecture_mismatch_of_base"), "an uploaded base fits "
                            "another architecture",
          "Send the file as POST /v1/bases?architecture=resnet18&image_size=32&channels=3.",
          "tests/core/bases/test_base_advice.py::test_the_error_names_the_field_and_the_request_that_would_be_taken"),
    AdviceRow("no-answers", ("core/comparisons/compared_tasks.py:_explain_missing_predictions",), "versions from "
        "before predictions were stored",
          f"The next job makes and stores them: send a batch (POST {M}/tasks).",
          "not followed: no version of this release lacks answers"),
    AdviceRow("export-failed", ("core/versions/export_jobs.py:_explain_missing_download",
          "core/execution/exporting.py:read_export_job_inputs"),
          "an export failed or was cancelled", "POST /v1/jobs/job_1/retry tries again.",
          "not followed: tests/api has the refusal; without the missing packages, the retry fails "
          "again by design"),
    AdviceRow("which-task", ("core/predictions/predictions.py:_check_task_of_prediction_request",),
          "a request for a prediction names no head",
          "Name the task with ?task= (1 or 2).", "not followed: a parameter of predict, tested in "
              "tests/api/predict"),
    AdviceRow("quota", ("core/usage/quota.py:_make_storage_full_error",
                    "core/execution/kinds/fetch.py:_require_storage_room_of_owner"),
          "an owner's bytes are used up", "Delete models or open uploads (GET /v1/uploads).",
          "not followed: you choose what to delete; tests/core/usage/test_quota.py shows what "
          "this frees"),
    AdviceRow("rebase-begun", ("core/rebase/rebase.py:_require_rebasable",
                           "core/rebase/rebase.py:_build_base_and_architecture_fields",
                           "core/rebase/rebase.py:_add_model_and_jobs",
                           "core/rebase/rebase_plan.py:find_rebase_models"),
          "a move to another base has begun, or has not", f"GET {M}/rebase says how far it is.",
          "tests/e2e/test_rebase.py::test_a_model_moves_to_another_base_after_both_were_compared_though_a_job_dies"),
    AdviceRow("rebase-compared", ("core/rebase/rebase_comparison.py:_list_rebase_warnings",),
          "the new model of a move is worse, or clients must use another id", "", TELLS),
    AdviceRow("rebase-finish", ("core/rebase/rebase_comparison.py:_describe_next_rebase_step",
                            "core/rebase/rebase_finish.py:_require_rebase_comparison_current",
                            "core/rebase/rebase_finish.py:_require_new_model_can_take_over",
                            "core/rebase/rebase_finish.py:_require_undo_called_on_old_model"), "a move can be "
                                "finished or taken back",
          f"POST {M}/rebase/finish moves production.",
          "tests/e2e/test_rebase.py::test_a_model_moves_to_another_base_after_both_were_compared_though_a_job_dies"),
    AdviceRow("edit-pattern", ("core/edits/image_patterns.py:expand_image_patterns_in_operations",),
          "a pattern of paths matches no image of a task, or too many", "", TELLS),
    AdviceRow("edit-task-scenario", ("core/edits/operation_checks.py:check_and_combine_operations",),
          "a model with a head for each task is edited",
          "Correct the batch and send it again.",
          "not followed: it is sending a batch, as every journey of tests/e2e does"),
    AdviceRow("former-name", ("core/ingest/layout.py:replace_former_class_names",),
          "a batch has a class that was dropped from the model, or a former name of a class", "", TELLS),
    AdviceRow("relearn", ("core/tasks/retries.py:_retry_or_relearn_task",
                        "core/tasks/task_decisions.py:_explain_why_task_not_relearnable"),
          "a task is retried although it must be learned again, or vice versa",
          f"Learn it again with POST {M}/tasks/2/relearn.",
          "not followed: the request that it names is followed by `missing`"),
    AdviceRow("uploads", ("core/uploads/uploads.py:_require_open_uploads_within_limit",
                      "core/uploads/uploads.py:_make_missing_upload_error",
                      "core/uploads/complete_uploads.py:require_complete_upload",
                      "core/uploads/complete_uploads.py:read_upload_bytes"),
          "an upload is missing or unfinished, or there are too many", "GET /v1/uploads lists all.",
          "not followed: the client resumes uploads by itself, tests/client/test_large_batches.py"),
    AdviceRow("webhook", ("core/webhooks/webhooks.py:require_webhook_enabled",
                      "core/webhooks/webhooks.py:require_room_for_delivery"),
          "a webhook is disabled, or too many deliveries wait", 'PATCH /v1/webhooks/whk_1 '
              '{"enabled": true} first.',
          "not followed: tests/api/routes/test_webhooks.py enables one"),
    AdviceRow("data-settled", (), "a held batch is learned as it is: the finding is not "
        "repeated", "",
          FOLLOWED + "test_what_a_person_has_accepted_neither_warns_nor_holds_when_it_is_learned_again"),
    AdviceRow("suspects", ("core/learning/reports/data_findings.py:_build_suspect_images_finding",),
          "labels look wrong",
          "Look at them: report.data.suspects of the task, and pictures on its page.",
          "not followed: a person looks; what is found is in tests/core/learning/reports/test_data_report.py"),
    AdviceRow("mislabelled", ("core/learning/reports/data_findings.py:_build_mislabelled_classes_finding",
          "core/lineage/checks.py:_check_learning_of_batch_classes"),
          "labels of known classes look swapped or wrong", "Correct wrong labels and send the "
              "batch again",
          "not followed: a person looks; the images are listed in tests/e2e/test_wrong_labels.py"),
    AdviceRow("near-duplicates", ("core/learning/reports/data_findings.py:_build_held_out_leak_finding",
                              "core/learning/reports/data_findings.py:_build_training_on_earlier_held_out_finding",
                              "core/learning/reports/data_findings.py:_build_repeated_images_finding"),
          "images are nearly the same as others",
          "Put images of one scene into one part.",
          "tests/core/learning/reports/test_duplicates.py::test_folds_of_single_frames_promise_what_new_images_do_not_keep"),
    AdviceRow("few", ("core/learning/reports/data_findings.py:_build_small_classes_finding",),
          "a class has fewer than 5 images",
          "Send more of them.",
          FOLLOWED + "test_more_images_of_classes_tell_them_apart_better"),
    AdviceRow("shift", ("core/learning/reports/data_findings.py:_build_class_shift_finding",),
          "images of known classes differ from earlier ones",
          "Look at them; if they are right, the model needs them.", "not followed: a person looks"),
    AdviceRow("would-say",
          ("core/learning/reports/data_findings.py:_build_new_classes_taken_for_known_finding",),
          "production would predict known classes for images of new ones",
          "", TELLS),
    AdviceRow("weak", ("core/recipe/combination_warnings.py:list_recipe_warnings",
                   "core/recipe/combination_warnings.py:list_ineffective_field_warnings"),
          "a method or modifier is weak in a scenario, or changes nothing", "Name a method that "
              "trains.",
          "not followed: docs/benchmarks.md has measurements of both sides"),
    AdviceRow("damage", ("core/retention/damage.py:_build_damaged_part_error",), "a stored part is damaged",
          f"Roll back and learn task 2 again (POST {M}/tasks/2/relearn).",
          "not followed: it needs a damaged store; tests/e2e/test_restore.py restores objects"),
)  # fmt: skip


def main() -> None:
    """Write the reference table of warnings and advice into the documentation."""
    # `python -m` finds the service's packages only; the client is one folder below.
    sys.path.insert(0, str(ROOT / "client"))
    DOCUMENT.write_text(render_advice_table())


def render_advice_table() -> str:
    """Render the reference table of warnings and advice as Markdown."""
    from api.pages.parts.wording import replace_requests_by_button_labels
    from perennial.words import replace_requests_by_commands

    rows = []
    for one in ENTRIES:
        forms = (
            [
                one.says,
                replace_requests_by_commands(one.says),
                replace_requests_by_button_labels(one.says),
            ]
            if one.says
            else ["–"] * 3
        )
        cells = (
            f"`{one.code}`",
            one.when,
            *map(_escape_table_cell, forms),
            _format_test_link(one.test),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([HEAD, *rows, ""])


HEAD = """\
# Warnings and advice

This page lists all advice of the service in its three forms. The API names a request, the command line names the
command that sends it, and a page names its button. All forms come from one source (`client/perennial/steps.py`).
*Followed* is the test that follows the advice literally and shows that it helps, or the reason why there is none.
Entries without advice are information only. `python -m tools.advice_table` writes this page.

For a held version, the first request changes the mean accuracy over two batches of two digits as follows. The network
is an `mlp` of 16 units, with one run each (`tests/e2e/test_first_advice.py`):

- the model's own recipe instead of the batch's: .50 → .91;
- the head alone by `lwf` after fine-tuning: .50 → .66;
- `slca` after `er` with two kept images: .53, .53, .75 and .69 with four seeds. The gate holds the first two again.

Rebalancing the next batch, as advised for a biased head, gives .25 → .81. Rolling back from collapsed features gives
.17 → .96 (`tests/e2e/test_advice_followed.py`).

| advice | when | API | command line | page | followed |
| --- | --- | --- | --- | --- | --- |"""


def _escape_table_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _format_test_link(test: str) -> str:
    file, _, name = test.partition("::")
    return test if not name else f"[`{name}`](../../{file})"


def find_advice_functions() -> set[str]:
    """Find all functions whose text advises a request or option, as `file:function`."""
    return {
        f"{path.relative_to(ROOT)}:{function.name}"
        for folder in PLACES
        for path in sorted((ROOT / folder).rglob("*.py"))
        if MENTIONS.search(text := path.read_text())
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef) and _does_function_give_advice(function)
    } - NO_ADVICE


def _does_function_give_advice(function: ast.FunctionDef) -> bool:
    # A docstring may quote a request without advising it.
    docstring = ast.get_docstring(function, clean=False)
    # Texts of inner functions belong to those, which are examined by themselves.
    nested = {
        id(node)
        for inner in ast.walk(function)
        if isinstance(inner, ast.FunctionDef) and inner is not function
        for node in ast.walk(inner)
    }
    for node in ast.walk(function):
        if id(node) in nested:
            continue
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value != docstring
        ):
            if ASKS.search(node.value):
                return True
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "ApiRequestForAdvice" or WARNS.search(called):
                return True
        elif isinstance(node, ast.AugAssign) and "warnings" in ast.unparse(node.target):
            return True
    return False


if __name__ == "__main__":
    main()
