# SPDX-License-Identifier: Apache-2.0
"""XGBoost's tracker on the master and its workers everywhere, as programs of XGBoostJobs do it."""

from __future__ import annotations

import os
import socket

import pod

pod.play()


def joined() -> dict[str, object]:
    """Return what the tracker tells its workers, and who this one turned out to be."""
    from xgboost import collective
    from xgboost.tracker import RabitTracker

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host = socket.gethostbyname(os.environ["MASTER_ADDR"])
    port = int(os.environ["MASTER_PORT"])
    tracker, said = None, None
    if rank == 0:
        tracker = RabitTracker(host_ip=host, n_workers=size, port=port, sortby="task", timeout=60)
        tracker.start()
        said = tracker.worker_args()
    with collective.CommunicatorContext(
        dmlc_communicator="rabit",
        dmlc_tracker_uri=host,
        dmlc_tracker_port=port,
        dmlc_task_id=f"{rank:05d}",
    ):
        place = [collective.get_rank(), collective.get_world_size()]
        names = [collective.broadcast(os.environ["HOSTNAME"], root) for root in range(size)]
    if tracker is not None:
        tracker.wait_for()
    return {"tracker": said, "place": place, "names": names}


pod.say(**joined())
