# SPDX-License-Identifier: Apache-2.0
"""The embedded gang scheduler around its core: it watches gangs, runs cycles, performs decisions.

Rule: the pure `tracker` derives the state of gangs of jobs and of other pods alike; `loop` runs
the cycles and performs their results. Below are `store`, `cluster`, `kube` and the scheduler core;
`runtime` starts it, and its reconciler asks it where pods may be created.
"""
