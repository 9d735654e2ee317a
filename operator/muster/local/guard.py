# SPDX-License-Identifier: Apache-2.0
"""Takes a cluster down when the process that it is tied to has ended, however it ended.

Run as `python -m muster.local.guard CLUSTER PID BIRTH`, in a session of its own, before the
first component starts.
"""

from __future__ import annotations

import sys

from muster.local import cluster, processes


def main(argv: list[str]) -> None:
    """Wait for the end of the process, then take the cluster down."""
    name, pid, birth = argv
    parent = processes.Identity(int(pid), int(birth))
    while processes.wait_gone([parent], seconds=3600):
        pass
    try:
        cluster.down(name)
    except cluster.ClusterError as error:
        # Nobody is left to try again: what runs on this machine ends all the same.
        print(error, file=sys.stderr)
        cluster.down(name, forget=True)


if __name__ == "__main__":
    main(sys.argv[1:])
