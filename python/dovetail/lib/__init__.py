"""The folder of the compiled part, dovetail.lib._core.

SPDX-License-Identifier: Apache-2.0
"""
