"""Execution of a plan: repeated runs, child processes, and the lock of the results folder."""

import argparse
import fcntl
import os
import signal

import pytest
import torch
from experiments import make_run

from bench.experiment import conduct as module
from bench.experiment import pool
from bench.experiment.__main__ import _parse_positive_integer
from bench.experiment.conduct import run_experiment_plan, run_unfinished_runs
from bench.experiment.plan import PlanError
from bench.experiment.runs import ExperimentResultStore, build_failed_run_record

DONE = {"status": "done", "stages": [], "seconds": 1.0}


def do_work_here(todo, at_once):
    """Do all work in this process."""
    for work in todo:
        work.do(at_once)
        work.ended(None)


def test_runs_that_found_too_little_memory_come_again_half_as_many_at_once(tmp_path, monkeypatch):
    store, tries = ExperimentResultStore(tmp_path), []
    runs = [make_run(name) for name in ("small", "large", "wrong")]

    def learn_if_memory_fits(run, store, at_once):
        tries.append((run.method, at_once))
        if run.method == "wrong":
            store.write_run_record(
                run.result_inputs_digest, build_failed_run_record("code", "wrong")
            )
        else:
            fits = run.method == "small" or at_once == 1
            store.write_run_record(
                run.result_inputs_digest,
                DONE if fits else build_failed_run_record("memory", "too little"),
            )

    monkeypatch.setattr(module, "run_work_in_children", do_work_here)
    monkeypatch.setattr(module, "execute_and_record_run", learn_if_memory_fits)
    run_unfinished_runs([], runs, store, 5)
    assert tries == [("small", 5), ("large", 5), ("wrong", 5), ("large", 2), ("large", 1)]


def test_a_run_that_never_fits_is_left_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "run_work_in_children", do_work_here)
    monkeypatch.setattr(
        module,
        "execute_and_record_run",
        lambda run, store, fd: store.write_run_record(
            run.result_inputs_digest, build_failed_run_record("memory", "no")
        ),
    )
    store = ExperimentResultStore(tmp_path)
    run_unfinished_runs([], [make_run("a")], store, 2)
    assert store.read_run_record(make_run("a").result_inputs_digest)["failure"]["kind"] == "memory"


@pytest.mark.slow
def test_work_is_done_in_children_and_what_ends_one_early_is_told():
    reasons = []
    codes = (
        lambda fd: None,
        lambda fd: os.kill(os.getpid(), signal.SIGTERM),
        lambda fd: os._exit(7),
    )
    pool.run_work_in_children([pool.ChildProcessWork(code, reasons.append) for code in codes], 1)
    assert reasons == [None, "ended by SIGTERM", "ended with status 7"]


def test_a_device_that_is_not_there_fails_no_run(plan, data, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(PlanError, match="there is no CUDA device here"):
        run_experiment_plan(
            plan('[[methods]]\nname = "finetune"'), data, tmp_path / "out", 1, "cuda"
        )
    assert not (tmp_path / "out").exists()


def test_a_folder_of_results_has_one_process_at_a_time(tmp_path, monkeypatch, capsys):
    done = []
    flock = fcntl.flock

    def lock_and_release_other(file, how):
        """Release the other lock as soon as a process waits for it."""
        if not how & fcntl.LOCK_NB:
            done.append("waits")
            other.close()
        flock(file, how)

    other = (tmp_path / "lock").open("w")
    flock(other, fcntl.LOCK_EX)
    monkeypatch.setattr(fcntl, "flock", lock_and_release_other)
    with module._hold_experiment_folder_lock(tmp_path):
        done.append("works")
    assert done == ["waits", "works"] and "waiting for it" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["0", "-1"])
def test_no_runs_at_once_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="1 or more"):
        _parse_positive_integer(text)
