# SPDX-License-Identifier: Apache-2.0
"""Pure core 2: documents of the cluster in, one Snapshot for the scheduler out.

Rule: functions of values, and columns that change only by the events they are given; no I/O, no
clock, no dice. `ClusterColumns.snapshot` is the only way to a Snapshot, for cycles, `explain`,
`simulate`, `snapshot` and a replay. Above it `store` keeps the state up to date and `allocator`
asks for snapshots; below it are `controller`, which knows what pods a job wants, and `scheduler`,
which knows nothing of Kubernetes.
"""
