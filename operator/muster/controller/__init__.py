# SPDX-License-Identifier: Apache-2.0
"""Pure core 1: what is observed of one job in, actions out. No I/O, no clock."""
