# SPDX-License-Identifier: Apache-2.0
"""The embedded gang scheduler around its core: gangs followed, cycles run, decisions carried out.

Rule: what is remembered of a gang, and what becomes of it, is decided in `tracker`, which is pure
and the same for the pods of jobs and for those of other people; `loop` runs the cycles and carries
out what came of them. Below are `store`, `cluster`, `kube` and the scheduler core; `runtime`
starts it, and its reconciler asks it where pods may be created.
"""
