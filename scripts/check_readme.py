#!/usr/bin/env python3
# Holds README.md against the tool: every block of simulated commands is run, and what is printed must
# be what the page shows. A block that needs ranks or a link (--netns, or files of such a run) is left
# to the reader.
#
#   scripts/check_readme.py [--update] [BUILD]      BUILD: folder of the tool, default build
#
#   --update  writes what is printed now into README.md
#
# Exit code 1 where something differs.
#
# SPDX-License-Identifier: Apache-2.0
import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(?<=```\n)(\$ build/dovetail .*?)(?=```)", re.DOTALL)
MEASURED = ("--netns", "measured.json")


def printed(command, tool, folder):
    """What the command prints, run in `folder`."""
    words = command.replace("build/dovetail", str(tool))
    ended = subprocess.run(words, shell=True, cwd=folder, text=True, check=False,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return ended.stdout.replace(str(tool), "dovetail")


def check(block, tool, folder):
    """The block as it is now, and how many of its commands were run."""
    commands = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    now = ""
    for part in commands:
        command = part.partition("\n")[0]
        now += "$ " + command + "\n" + printed(command, tool, folder)
    return now, len(commands)


def main():
    arguments = [word for word in sys.argv[1:] if word != "--update"]
    tool = (ROOT / (arguments[0] if arguments else "build") / "dovetail").resolve()
    if not tool.exists():
        sys.exit(f"{tool}: build first")
    page = ROOT / "README.md"
    text = page.read_text()
    run = 0
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        for block in BLOCK.findall(text):
            if any(word in block for word in MEASURED):
                continue
            now, commands = check(block, tool, folder)
            run += commands
            if now == block:
                continue
            differences += difflib.unified_diff(block.splitlines(), now.splitlines(), "README.md",
                                                "printed now", lineterm="", n=0)
            text = text.replace(block, now)
    print(*differences, sep="\n", end="\n" if differences else "")
    print(f"{run} commands of README.md run, {'some differ' if differences else 'all as shown'}")
    if "--update" in sys.argv:
        page.write_text(text)
    elif differences:
        sys.exit(1)


main()
