# SPDX-License-Identifier: Apache-2.0
"""What `python -m paddle.distributed.launch` makes of its environment, and of its peers."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import hollow
import pod

pod.play()
hollow.use("paddle")


def launched() -> dict[str, object]:
    """Return the launcher's arguments and what it starts its programs with.

    It meets the launchers of the other pods at the master, which is in the first of them.
    """
    from paddle.distributed.launch import controllers
    from paddle.distributed.launch.context import Context

    sys.argv = ["launch", "train.py"]
    context = Context(enable_plugin=False)
    controller = controllers.init(context)
    controller.build_job()
    controller.build_pod()
    job, own = controller.job, controller.pod
    leave(controller.master, own.name, job.replicas)
    return {
        "job": [job.id, job.replicas_min, job.replicas_max],
        "master": context.args.master,
        "mode": context.args.run_mode,
        "leads": controller.master.role == "main",
        "rank": own.rank,
        "programs": [dict(program.env) for program in own.containers],
    }


def leave(master: Any, name: str, size: int) -> None:
    """Tell the master that this one has met its peers; the master itself waits for all."""
    master.client.put(f"/left/{name}", "1")
    while master.role == "main" and len(master.client.get_prefix("/left")) < size:
        time.sleep(0.05)


pod.say(**launched())
# The master answers in a thread that does not end.
os._exit(0)
