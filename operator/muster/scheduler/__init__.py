# SPDX-License-Identifier: Apache-2.0
"""Pure core 3: a snapshot of the cluster in, decisions out.

Rule: numpy and the standard library only; nothing of Kubernetes but the words for reasons, no I/O,
no clock, no dice. Beside it, unknown to it, is `controller`; above it `cluster` makes the snapshot
and `allocator` carries out the decisions.
"""
