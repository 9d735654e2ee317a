# SPDX-License-Identifier: Apache-2.0
"""Pure core 1: observations of one job in, actions out.

Rule: no I/O, no clock, no randomness; each reconcile derives everything from its input. Below are
the tables of `frameworks` and `gang`; unknown to it is `scheduler`; above are `cluster`, which
requests the pods that a job wants, and the reconciler of `runtime`, which performs the actions.
"""
