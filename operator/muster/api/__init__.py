# SPDX-License-Identifier: Apache-2.0
"""Vocabulary: what users write. Pydantic models and names; no behaviour."""
