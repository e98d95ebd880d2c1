"""Named points where fault tests end the process as `kill -9` does. Otherwise they do nothing.

PERENNIAL_KILL_POINTS names a folder. A file in it with a point's name arms the point. The first
process that reaches the point removes the file and is killed, so one file causes one death. A file
with the number of a signal sends that signal instead: SIGSTOP holds the process at the point until
it gets SIGCONT, 0 does nothing. A file that is a pipe holds one thread there until it has read it.

While the folder has a file `device-error`, a job process raises the error in it before its first
step. So does the check of the device.
"""

import os
import signal
from pathlib import Path

POINTS = {
    "submit-stored": "the archive is in the store, the task is not accepted",
    "submit-committed": "the task is accepted, nobody was told",
    "upload-received": "a piece of an upload is in the spool, nothing of it is stored",
    "upload-stored": "a piece of an upload is in the store, nothing names it",
    "upload-committed": "an upload has one piece more, its client was not told",
    "upload-assembled": "a whole upload is in the spool, its task is not accepted",
    "upload-spent": "the task of an upload is accepted, the upload's pieces are still in the store",
    "ring-sent": "a worker was rung, nobody noted that",
    "claim-committed": "a worker owns the job and has done nothing for it",
    "ingest-decoded": "the archive is decoded, nothing of it is stored",
    "ingest-stored": "the dataset is stored, nothing names it",
    "ingest-committed": "the dataset is named, the raw archive is still there",
    "archive-deleted": "the raw archive is gone, the task still names it",
    "prepare-done": "everything that training needs is on this machine",
    "job-train": "the job process has its network, before the first step",
    "job-snapshot": "the job process has written a snapshot, the worker has not heard of it",
    "job-consolidate": "after the last step, before the method's end of the task",
    "job-evaluate": "before the new version is measured",
    "job-done": "the result is whole, the worker has not heard of it",
    "snapshot-stored": "a snapshot is in the store, the job does not name it",
    "snapshot-registered": "a snapshot is the job's, older ones are still there",
    "edit-prepared": "an edit's data is stored, nothing names it, and no task is learned again",
    "edit-learned": "one task of an edit is learned again, nothing of it is stored",
    "edit-finished": "all tasks of an edit are learned again, nothing of them is stored",
    "trial-begun": "a trial has lent its recipe to the job, nothing of it is learned",
    "trial-stored": "the result of a trial is in the store, nothing names it",
    "trial-measured": "a trial is measured, the next one is not begun",
    "trial-chosen": "a trial is chosen, nothing of it is published",
    "part-stored": "one part of a version is in the store, others are not",
    "publish-stored": "all parts are in the store, nothing names them",
    "publish-uncommitted": "everything is said in the publishing transaction, which is not "
    "committed",
    "publish-committed": "the version is there, snapshots and spent data are too",
    "publish-cleaned": "everything is done, the worker has not looked at the queue again",
    "release-asked": "a worker that stops has not given its job back",
    "reap-committed": "a job was taken from a dead worker, nobody was rung",
    "fetch-downloaded": "weights are downloaded and checked, nothing of them is stored",
    "fetch-stored": "weights are stored, nothing names them",
    "fetch-made": "version 0 is made of weights, the job is not over",
    "export-written": "the job process has written a graph and has not checked it",
    "export-stored": "an export is stored, nothing names it",
    "export-made": "an export can be downloaded, its job is not over",
    "delivery-claimed": "a webhook is a worker's, nothing is sent to it",
    "delivery-sent": "a receiver has taken a delivery, nobody has noted that",
    "sweep-uncommitted": "unused blobs are deleted, their transaction is not committed",
}
"""Point → the actions that are done there, and those that are not."""
# Read once, so that a point costs nothing where none is armed.
_FOLDER = os.environ.get("PERENNIAL_KILL_POINTS")
DEVICE_ERROR = "device-error"
"""Name of the file in that folder with the error message of a broken device."""


def hit_failpoint(point: str) -> None:
    """Kill this process, or send it a signal, if a test has armed the named point of failure."""
    if _FOLDER is None:
        return
    armed = Path(_FOLDER, point)
    try:
        number = int(armed.read_text() or signal.SIGKILL)
        # Disarmed first: the process that is started next must not die here again.
        armed.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), number)


def raise_device_error_in_test() -> None:
    """Raise RuntimeError with the text of the file `device-error`, if a test has written it."""
    if _FOLDER is None:
        return
    armed = Path(_FOLDER, DEVICE_ERROR)
    if armed.exists():
        raise RuntimeError(armed.read_text())
