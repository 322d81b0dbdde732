"""Runs a program of this machine, also from within a root of scripts/checks/torch_root.sh, whose libraries are others.

SPDX-License-Identifier: Apache-2.0
"""

import os
import subprocess


def run_on_host(words):
    """As subprocess.run does, with what the program printed as text."""
    host = os.environ.get("DOVETAIL_HOST")
    environment = {key: value for key, value in os.environ.items() if not host or key != "LD_LIBRARY_PATH"}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment,
                          preexec_fn=(lambda: os.chroot(host)) if host else None)
