# SPDX-License-Identifier: Apache-2.0
"""Pure core 2: a snapshot of the cluster in, decisions out. numpy and the standard library only."""
