"""A model's lineage under random orders of requests and worker actions.

Learning is a fake whose outcome the test chooses. The machine holds no second implementation of the
rules. It records what users were told, and checks after each step that no loss went unreported. No
class may leave production and no task may leave the lineage head without notice. No job may wait
for ever.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import select

from core.database.states import LEASED, UNFINISHED, JobAction, JobState
from core.database.tables import Alias, Job, Model, Task, Version
from core.errors import Invalid, LeaseLost, PerennialError, Rejected, WrongState
from core.ingest.inspect import ArchiveSummary
from core.jobs import jobs
from core.jobs.job_response import read_job_response_contexts
from core.lineage import lineage
from core.lineage.coverage import list_taught_tasks
from core.models import attention, models
from core.publishing.publish import publish_or_hold_job_result
from core.requests.actor import Actor
from core.requests.resources import UseCaseResources
from core.scheduling import claim as claims
from core.scheduling.claim import JobClaim
from core.tasks import retries, task_decisions, tasks
from core.tasks.submission import BatchSubmission
from core.tasks.submitted_batch import SpooledBatch
from core.versions import aliases
from tests.core.batches import CATALOGUE

LONG = 1000.0
GOOD, BAD = 9, 1
"""Correct answers out of ten; the gate requires five."""
GATE = {"min_new_task": 0.5}
Refused = (WrongState, Invalid)


class Line(RuleBasedStateMachine):
    """One model and one worker. `desk` is set by the test."""

    desk: Any

    @initialize(
        scenario=st.sampled_from(["class", "class", "task", "data"]),
        on_held=st.sampled_from(["stop", "stop", "continue"]),
        on_rejected=st.sampled_from(["stop", "continue"]),
        on_failed=st.sampled_from(["stop", "continue"]),
        days=st.sampled_from([7.0, 7.0, 7.0, 0.0]),
        learned=st.integers(0, 3),
    )
    def open(
        self,
        scenario: str,
        on_held: str,
        on_rejected: str,
        on_failed: str,
        days: float,
        learned: int,
    ) -> None:
        self.desk.model()  # makes the owner
        self.actor = Actor(self.desk.owner, None, "write")
        given = {
            "name": f"m{len(self.desk.all(Model))}", "scenario": scenario, "architecture": "small-cnn", "gate": GATE,
            "on_held": on_held, "on_rejected": on_rejected, "on_failed": on_failed, "training_data_days": days,
            "image": {"size": 8},
        }  # fmt: skip
        service = UseCaseResources(self.desk.db, self.desk.blobs, CATALOGUE)
        made, _ = models.create_model(service, self.actor, given)
        self.scenario, self.model = scenario, str(made["id"])
        self.sent = 0
        self.claimed: JobClaim | None = None
        self.answered: set[int] = set()  # tasks that production was taught, as a person knows it
        self.headed: set[int] = set()  # the same of the line head
        self.ever_answered = False
        for _ in range(learned):
            self.submit(again=False)
            self.work(GOOD)
        self.answered, self.headed = self.production(), self.head()

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.everything_ends_once_it_is_settled()

    # People.

    @rule(again=st.booleans())
    def submit(self, again: bool) -> None:
        """Submit a batch of new classes, or of the classes of the first batch."""
        self.sent += 1
        number = 1 if again or self.scenario == "data" else self.sent
        found = ArchiveSummary({f"{number}a": 4, f"{number}b": 4}, 8, 0, 0, "zip", "folders", False)
        path = Path(self.desk.folder) / f"upload-{self.sent}"
        path.write_bytes(b"archive %d" % self.sent)
        batch = SpooledBatch(path, f"{self.sent:064x}", 9, found, None, {})
        lacked = self.lacked()
        try:
            answer = (
                BatchSubmission(
                    self.desk.db, self.desk.store, CATALOGUE, self.actor, self.model, batch, None
                )
                .submit_as_next_task()
                .response
            )
        except Invalid:
            assert self.scenario == "data"
            return
        for task in lacked:
            said = [text for text in answer["job"]["warnings"] if f"task {task} (" in text]
            assert said, f"nobody was told that the new version will lack task {task}"
        if self.stopped():
            assert answer["job"]["waiting_for"] is not None

    @rule(
        pick=st.integers(0, 9),
        action=st.sampled_from([JobAction.CANCEL, JobAction.PAUSE, JobAction.RESUME]),
    )
    def act(self, pick: int, action: JobAction) -> None:
        job = self.pick(self.rows(Job), pick)
        if job is not None:
            self.ask(lambda: jobs.apply_job_action(self.desk.db, self.actor, job.id, action))

    @rule(pick=st.integers(0, 9))
    def retry(self, pick: int) -> None:
        job = self.pick(self.rows(Job), pick)
        if job is not None:
            self.ask(lambda: retries.retry_job(self.desk.db, CATALOGUE, self.actor, job.id, None))

    @rule(pick=st.integers(0, 9), how=st.sampled_from(["continue", "discard", "relearn"]))
    def settle(self, pick: int, how: str) -> None:
        task = self.pick(self.rows(Task), pick)
        if task is not None:
            self.ask(lambda: self.settling(how, task.number))

    @rule(pick=st.integers(0, 9), action=st.integers(0, 9))
    def do_what_the_model_asks_for(self, pick: int, action: int) -> None:
        """Check that each request that `attention` names is granted."""
        entry = self.pick(self.attention(), pick)
        if entry is None:
            return
        asked = self.pick(entry["actions"], action)
        assert asked is not None, "what waits for a person names at least one request"
        *_, noun, name, verb = f"{asked['path']}/".rstrip("/").split("/")
        if noun == "jobs":
            self.ask(
                lambda: retries.retry_job(self.desk.db, CATALOGUE, self.actor, name, None),
                granted=True,
            )
        elif noun == "aliases" or asked["method"] == "PUT":
            self.put(asked["body"]["version"], granted=True)
        elif verb != "tasks":
            self.ask(lambda: self.settling(verb, int(name)), granted=True)

    @rule(pick=st.none() | st.integers(0, 9))
    def roll_back(self, pick: int | None) -> None:
        version = None if pick is None else pick % (len(self.rows(Version)) + 1)
        self.move(
            lambda: aliases.roll_alias_back(
                self.desk.db,
                self.actor,
                self.model,
                "production",
                aliases.AliasMoveReasonAndSeenVersion("worse"),
                version,
            )
        )

    @rule(pick=st.integers(0, 9), reason=st.sampled_from([None, "seen"]))
    def promote(self, pick: int, reason: str | None) -> None:
        version = self.pick(self.rows(Version), pick)
        if version is not None:
            self.put(version.number, reason=reason)

    @rule()
    def follow(self) -> None:
        self.move(
            lambda: aliases.let_production_follow_lineage(
                self.desk.db, self.actor, self.model, "production"
            )
        )

    @rule(pick=st.integers(0, 9))
    def delete_data(self, pick: int) -> None:
        task = self.pick(self.rows(Task), pick)
        if task is not None:
            desk = self.desk
            self.ask(
                lambda: tasks.delete_task_data(
                    desk.db, desk.store, desk.blobs, self.actor, self.model, task.number
                )
            )

    @rule(
        name=st.sampled_from(["on_held", "on_failed", "on_rejected"]),
        to=st.sampled_from(["stop", "continue"]),
    )
    def change(self, name: str, to: str) -> None:
        models.change_model(self.desk.db, CATALOGUE, self.actor, self.model, {name: to})

    # The worker.

    @precondition(lambda self: self.claimed is None)
    @rule()
    def claim(self) -> None:
        due = self.due()
        found = claims.claim_job(self.desk.db, "w", LONG)
        assert (found.job_id if found else None) == due, (
            "claimed out of turn, or not though it was its turn"
        )
        self.claimed = found
        if found is not None:
            assert found.parent_version == self.model_row().head, "a task starts from the line head"

    @precondition(lambda self: self.claimed is not None)
    @rule(correct=st.sampled_from([GOOD, GOOD, BAD]))
    def publish(self, correct: int) -> None:
        claim = self.taken()
        if claim.state is JobState.VALIDATING:
            self.decode(claim)
        before = self.must_cover(claim.task_number)
        result = self.desk.result({"head": claim.job_id}, [("new", claim.task_number, correct, 10)])
        try:
            made = publish_or_hold_job_result(self.desk.db, self.desk.store, claim, result)
        except WrongState:  # a stop was asked for
            claims.complete_pause_or_cancellation(self.desk.db, claim)
            return
        except LeaseLost:
            assert self.given_back(claim)
            return
        with self.desk.db.read() as session:
            version = session.scalars(
                select(Version).where(Version.model_id == self.model, Version.number == made.number)
            ).one()
            missing = before - set(list_taught_tasks(version.manifest))
            if missing and self.scenario != "data":
                assert version.status == "held", f"published without tasks {missing}"
            lacked = [
                task for task in self.lacked() if task not in list_taught_tasks(version.manifest)
            ]
            assert all(
                any(f"task {task} (" in text for text in version.warnings) for task in lacked
            )
        self.told_nothing()

    @precondition(lambda self: self.claimed is None)
    @rule(correct=st.sampled_from([GOOD, BAD]))
    def work(self, correct: int) -> None:
        """Run the next job from start to end."""
        self.claim()
        if self.claimed is not None:
            self.publish(correct)

    @precondition(lambda self: self.claimed is None)
    @rule(again=st.booleans(), correct=st.sampled_from([GOOD, GOOD, BAD]))
    def submit_and_work(self, again: bool, correct: int) -> None:
        self.submit(again)
        self.work(correct)

    @precondition(lambda self: self.claimed is not None)
    @rule(how=st.sampled_from(["fail", "reject", "requeue", "stopped"]))
    def end(self, how: str) -> None:
        claim = self.taken()
        db = self.desk.db
        if how == "reject" and claim.state is not JobState.VALIDATING:
            how = "fail"
        ways: dict[str, Callable[[], object]] = {
            "fail": lambda: claims.fail_claimed_job_or_trial(db, claim, "code", "no"),
            "reject": lambda: claims.reject_job(db, claim, Rejected("Not one.")),
            "requeue": lambda: claims.requeue_or_fail_job(db, claim, "died"),
            "stopped": lambda: claims.complete_pause_or_cancellation(db, claim),
        }
        try:
            ways[how]()
        except LeaseLost:
            assert self.given_back(claim)
        self.told_nothing()

    # What must be so after every step.

    @invariant()
    def production_answers_what_people_were_told(self) -> None:
        if not hasattr(self, "model"):
            return
        answered, headed = self.production(), self.head()
        gone = self.answered - answered
        assert not gone, f"production has lost tasks {gone}, and nobody was told"
        assert not self.headed - headed, "the line head has lost tasks, and nobody was told"
        self.answered, self.headed = answered, headed
        row = self.model_row()
        assert not row.production_follows or self.alias("production") == row.head
        self.ever_answered = self.ever_answered or bool(answered)
        assert answered or not self.ever_answered, "production cannot answer any more"

    @invariant()
    def tasks_stand_as_the_line_head_says(self) -> None:
        if not hasattr(self, "model"):
            return
        headed = self.head()
        for task in self.rows(Task):
            assert (task.standing == "learned") == (task.number in headed), (
                task.number,
                task.standing,
            )
            assert not task.stops or task.standing in ("held", "failed", "rejected")

    @invariant()
    def what_waits_for_a_person_is_said(self) -> None:
        if not hasattr(self, "model"):
            return
        open_tasks = {
            job.task_number for job in self.rows(Job) if JobState(job.state) in UNFINISHED
        }
        entries = {entry["task"]: entry for entry in self.attention()}
        for task in self.rows(Task):
            if task.number in open_tasks:
                continue
            asks = task.standing in ("held", "rolled_back", "failed", "rejected")
            assert asks == (task.number in entries), (task.number, task.standing)
        assert all(entry["detail"] and entry["actions"] for entry in entries.values())
        with self.desk.db.read() as session:
            beside = read_job_response_contexts(session, self.rows(Job))
        for job in self.rows(Job):
            waits = job.state == JobState.QUEUED and not job.again and self.stopped()
            assert waits == (beside[job.id].stop is not None)

    @invariant()
    def versions_are_published_or_held_and_in_order(self) -> None:
        if not hasattr(self, "model"):
            return
        versions = self.rows(Version)
        assert [v.number for v in versions] == list(range(len(versions)))
        published = [v.number for v in versions if v.status == "published"]
        assert max(published) == self.alias("latest")
        for version in versions:
            assert version.status == "held" or version.gate["passed"] or "overruled" in version.gate

    def everything_ends_once_it_is_settled(self) -> None:
        """Check that there is no deadlock.

        All that stops the lineage is discarded and all paused jobs are resumed. Then every job is
        learned.
        """
        if self.claimed is not None and not self.given_back(self.claimed):
            claims.complete_pause_or_cancellation(self.desk.db, self.claimed)
        self.claimed = None
        for _ in range(10 * (len(self.rows(Job)) + 1)):
            for job in self.rows(Job):
                if job.state == JobState.PAUSED:
                    jobs.apply_job_action(self.desk.db, self.actor, job.id, JobAction.RESUME)
            for task in self.rows(Task):
                if task.stops and task.number not in self.open_tasks():
                    task_decisions.discard_task(
                        self.desk.db, self.actor, self.model, task.number, None
                    )
            found = claims.claim_job(self.desk.db, "w", LONG)
            if found is None:
                break
            self.claimed = found
            claim = self.taken()
            if claim.state is JobState.VALIDATING:
                self.decode(claim)
            result = self.desk.result(
                {"head": claim.job_id}, [("new", claim.task_number, GOOD, 10)]
            )
            publish_or_hold_job_result(self.desk.db, self.desk.store, claim, result)
        waiting = [job.id for job in self.rows(Job) if JobState(job.state) in UNFINISHED]
        assert not waiting, f"jobs wait for ever: {waiting}"

    # Helpers.

    def rows(self, table: Any) -> list[Any]:
        with self.desk.db.read() as session:
            order = {Task: Task.number, Version: Version.number, Job: Job.place}[table]
            return list(
                session.scalars(select(table).where(table.model_id == self.model).order_by(order))
            )

    def model_row(self) -> Model:
        with self.desk.db.read() as session:
            return session.get_one(Model, self.model)

    def alias(self, name: str) -> int:
        with self.desk.db.read() as session:
            return session.get_one(Alias, (self.model, name)).version

    def covers(self, number: int) -> set[int]:
        with self.desk.db.read() as session:
            model = session.get_one(Model, self.model)
            version = lineage.find_version_by_number(session, model, number)
            assert version is not None
            return set(version.manifest.tasks)

    def production(self) -> set[int]:
        return self.covers(self.alias("production"))

    def head(self) -> set[int]:
        return self.covers(self.model_row().head)

    def attention(self) -> list[Any]:
        with self.desk.db.read() as session:
            model = session.get_one(Model, self.model)
            return attention.list_attention_items(session, [model]).get(self.model, [])

    def open_tasks(self) -> set[int]:
        return {job.task_number for job in self.rows(Job) if JobState(job.state) in UNFINISHED}

    def stopped(self) -> bool:
        return any(task.stops for task in self.rows(Task))

    def lacked(self) -> list[int]:
        """Return rolled-back and skipped tasks that the lineage head does not know."""
        headed = self.head()
        return [
            task.number
            for task in self.rows(Task)
            if task.standing in ("rolled_back", "skipped") and task.number not in headed
        ]

    def must_cover(self, own: int) -> set[int]:
        """Return the tasks that a version that learns task `own` must know.

        If `own` is learned again, tasks that are learned again after it are not among them.
        """
        tasks = {task.number: task.standing for task in self.rows(Task)}
        asked = {
            number for number, standing in tasks.items() if standing in ("learned", "rolled_back")
        }
        return asked - {own} - (self.open_tasks() if tasks[own] is not None else set())

    def due(self) -> str | None:
        """Return the job that is next by the simplest form of the rule."""
        unfinished = [job for job in self.rows(Job) if JobState(job.state) in UNFINISHED]
        if any(JobState(job.state) in LEASED for job in unfinished):
            return None
        settled = {task.number for task in self.rows(Task) if task.standing is not None}
        in_order = sorted(unfinished, key=lambda job: job.task_number)
        again = [job for job in in_order if job.task_number in settled]
        first = [job for job in in_order if job.task_number not in settled]
        if again:
            return again[0].id if again[0].state == JobState.QUEUED else None
        if self.stopped() or not first or first[0].state != JobState.QUEUED:
            return None
        return str(first[0].id)

    def decode(self, claim: JobClaim) -> None:
        """Do what validation does: store the dataset and set the job to running."""
        with self.desk.db.write() as session:
            task = session.get_one(Task, claim.task_id)
            task.train_sha256 = self.desk.blob(f"train {claim.task_id}")
            task.held_out_sha256 = self.desk.blob(f"held-out {claim.task_id}")
            task.n_train, task.n_held_out = 6, 2
            job = session.get_one(Job, claim.job_id)
            if job.state == JobState.VALIDATING:
                job.state = str(JobState.RUNNING)
            model = session.get_one(Model, self.model)
            if model.scenario == "data" and model.classes is None:
                model.classes = sorted(task.classes)

    def given_back(self, claim: JobClaim) -> bool:
        """Return whether the job was taken from its worker.

        This happens when data that the job holds is deleted.
        """
        with self.desk.db.read() as session:
            return session.get_one(Job, claim.job_id).fence != claim.fence

    def taken(self) -> JobClaim:
        claim, self.claimed = self.claimed, None
        assert claim is not None
        return claim

    def settling(self, how: str, number: int) -> object:
        if how == "relearn":
            resources = UseCaseResources(self.desk.db, self.desk.blobs, CATALOGUE)
            return task_decisions.relearn_task(resources, self.actor, self.model, number, None)
        do = (
            task_decisions.skip_held_task_and_continue_lineage
            if how == "continue"
            else task_decisions.discard_task
        )
        return do(self.desk.db, self.actor, self.model, number, "seen")

    def put(self, version: int, *, reason: str | None = "seen", granted: bool = False) -> None:
        self.move(
            lambda: aliases.set_alias(
                self.desk.db,
                self.actor,
                self.model,
                "production",
                version,
                aliases.AliasMoveReasonAndSeenVersion(reason),
            ),
            granted=granted,
        )

    def move(self, request: Callable[[], Any], *, granted: bool = False) -> None:
        """Move production, and check that the answer names every loss.

        These are losses of the lineage and of the classes that production answered.
        """
        answered, headed = self.production(), self.head()
        try:
            answer, _ = request()
        except Refused:
            assert not granted, "a request that the model asked for was refused"
            return
        named = {lost["task"] for lost in answer["lost_tasks"]}
        texts = " ".join(answer["warnings"])
        gone = (answered - self.production()) | (headed - self.head())
        assert gone <= named, f"tasks {gone - named} were lost, and nobody was told"
        assert all(f"task {task} (" in texts for task in gone)
        self.answered, self.headed = self.production(), self.head()

    def ask(self, request: Callable[[], object], *, granted: bool = False) -> None:
        """Send any other request; if it is refused, it must change nothing."""
        before = self.state()
        try:
            request()
        except PerennialError as error:
            assert isinstance(error, Refused) and not granted, error.detail
            assert self.state() == before, "a refused request has changed something"
        self.told_nothing()

    def told_nothing(self) -> None:
        """Do nothing: no loss was reported, so there must be none (the invariant compares)."""

    def state(self) -> Any:
        model = self.model_row()
        return (
            [(task.number, task.standing, task.stops) for task in self.rows(Task)],
            [(job.id, job.state, job.again) for job in self.rows(Job)],
            [(version.number, version.status) for version in self.rows(Version)],
            (model.head, model.production_follows, self.alias("production")),
        )

    @staticmethod
    def pick(found: list[Any], number: int) -> Any:
        """Return one of the newest ten, or None if there are none."""
        return found[-1 - number % min(len(found), 10)] if found else None
