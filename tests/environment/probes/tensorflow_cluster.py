# SPDX-License-Identifier: Apache-2.0
"""What TensorFlow's default cluster resolver makes of TF_CONFIG."""

from __future__ import annotations

from typing import Any

import hollow
import pod

pod.play()
hollow.use("tensorflow")


def resolved() -> dict[str, object]:
    """Return the cluster, this task's place in it and its address."""
    from tensorflow.python.distribute.cluster_resolver import tfconfig_cluster_resolver

    resolver = tfconfig_cluster_resolver.TFConfigClusterResolver()
    cluster = resolver.cluster_spec()
    # What is sent to the servers of the cluster; it keeps the numbers of sparse tasks.
    sent = cluster.as_cluster_def()
    return {
        "cluster": {
            job.name: {str(i): job.tasks[i] for i in sorted(job.tasks)} for job in sent.job
        },
        "sizes": {name: cluster.num_tasks(name) for name in cluster.jobs},
        "task": [resolver.task_type, resolver.task_id],
        "own": own(resolver),
    }


def own(resolver: Any) -> str | None:
    """Return the address of this task; None if the cluster has no such task."""
    try:
        return str(resolver.master())
    except ValueError as error:
        if "No task with index" not in str(error):
            raise
        return None


pod.say(**resolved())
