"""python -m dovetail.torch: measures this GPU, and compares what was measured.

    python -m dovetail.torch measure -o mine.json [--seconds 120] [--device h100]
    python -m dovetail.torch compare-gpu mine.json [other.json]

Exit codes: 0; 2 wrong use, with one line.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import os
import sys

from dovetail_torch.gpu_books import DEVICES, WrongUse, compared
from dovetail_torch.measure import measure

SECONDS = (1, 7200)


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise WrongUse(message)


def _seconds(text):
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not SECONDS[0] <= value <= SECONDS[1]:
        raise argparse.ArgumentTypeError(f"expected {SECONDS[0]} to {SECONDS[1]} seconds, found \"{text}\"")
    return value


def _parser():
    parser = _Parser(prog="dovetail.torch", description="A GPU's own book: what kernels take on it.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    taken = commands.add_parser("measure", help="measure this GPU and write its own book",
                                description="Measures what kernels take on this GPU. Use: dovetail explore --job JOB --cluster "
                                            "h100x8 --what-if gpu=FILE")
    taken.add_argument("-o", "--output", required=True, metavar="FILE")
    taken.add_argument("--seconds", type=_seconds, default=120, help="to measure in, the most important first (default 120)")
    taken.add_argument("--device", metavar="NAME",
                       help=f"whose shipped tables stand behind it (default: by the GPU's name): {', '.join(DEVICES)}")
    taken.add_argument("--device-type", choices=("cuda", "cpu"), default="cuda",
                       help="cpu only tries the way, on tiny sizes (default cuda)")
    compare = commands.add_parser("compare-gpu", help="how a GPU differs from the shipped tables or from another book",
                                  description="How a GPU differs from the shipped tables, or from another book.")
    compare.add_argument("book", metavar="FILE")
    compare.add_argument("other", metavar="OTHER", nargs="?")
    return parser


def _require_writable(path):
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise WrongUse(f"-o {path}: expected a file in a folder that can be written to")


def main():
    try:
        given = _parser().parse_args()
        if given.command == "measure":
            _require_writable(given.output)
            measure(given.output, seconds=given.seconds, device=given.device, kind=given.device_type)
        else:
            print("\n".join(compared(given.book, given.other)))
    except WrongUse as error:
        print(f"dovetail.torch: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
