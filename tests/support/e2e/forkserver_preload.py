# SPDX-License-Identifier: Apache-2.0
"""What an operator is made of, read once: the collector of a fork leaves its pages alone."""

import gc

import muster.runtime.app  # noqa: F401 -- read for those that are forked

gc.collect()
gc.freeze()
