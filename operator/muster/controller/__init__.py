# SPDX-License-Identifier: Apache-2.0
"""Pure core 1: what is observed of one job in, actions out.

Rule: no I/O, no clock, no dice; a pass derives everything anew from what it is given. Below are
the tables of `frameworks` and `gang`; beside it, unknown to it, `scheduler`; above it `cluster`,
which asks it for the pods that a job wants, and the reconciler of `runtime`, which carries the
actions out.
"""
