# SPDX-License-Identifier: Apache-2.0
"""Pure core 2: a snapshot of the cluster in, decisions out.

Rule: numpy and the standard library only; nothing of Kubernetes, no I/O, no clock, no dice.
"""
