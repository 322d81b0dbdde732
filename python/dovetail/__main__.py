"""The command `dovetail` of an installed package: becomes the tool that lies in it.

SPDX-License-Identifier: Apache-2.0
"""

import os
import sys


def main() -> None:
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "dovetail")
    os.execv(tool, [tool, *sys.argv[1:]])


if __name__ == "__main__":
    main()
