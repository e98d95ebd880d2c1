"""A Celery worker of `bench.service.workers`: the service's own, but for a zygote whose children
sleep.
"""

import sys

from worker import loop
from worker.celery_app import app

if __name__ == "__main__":
    loop.Worker.__init__.__defaults__ = ((sys.executable, "-m", "bench.service.sleeping_zygote"),)
    options = [
        "-P",
        "solo",
        "-n",
        sys.argv[1],
        "--without-gossip",
        "--without-mingle",
        "--loglevel",
        "WARNING",
    ]
    app.worker_main(["worker", *options])
