#!/usr/bin/env python3
# Holds README.md and docs/*.md against the tool: commands that simulate are run, and what is printed must
# be what the page shows.
#
#   scripts/checks/check_readme.py [--update] [BUILD] [PAGE...]     BUILD: folder of the tool, default build;
#                                                            pages: default all
#
# A block of ``` whose first line begins with "$ " is run, command by command, in one empty folder per page
# in which docs, models, scripts and tests can be reached:
#
#   $ build/dovetail ...   is run, and its output must be what stands below it; a line "..." there stands
#   $ python3 docs/...     for any number of lines
#   $ dovetail ...         is run, and must end with exit code 0; no output is shown. Of an explore that takes over
#                          10 s what it found until then is enough (Ctrl-C, exit code 130)
#   anything else          is a command for the reader, as is a block with a command that measures (run,
#                          calibrate) or needs files of one: its output is that of the machine it names
#
# --update writes what is printed now into the pages. Exit code 1 where something differs.
#
# SPDX-License-Identifier: Apache-2.0
import difflib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?<=^```\n)(\$ .*?)(?=^```)", re.DOTALL | re.MULTILINE)
SHOWN = ("build/dovetail ", "python3 docs/")
MEASURES = re.compile(r"dovetail (run|calibrate) |measured\.json|here\.json|--netns|mpirun|srun|torchrun")
LONGEST = 10  # seconds of an explore whose output no page shows


def run(command, tool, folder):
    """What it prints, and its exit code."""
    words = re.sub(r"(^|\| |&& )(build/)?dovetail ", rf"\1{tool} ", command)
    with subprocess.Popen(words, shell=True, env=dict(os.environ, DOVETAIL_PROGRESS="off", COLUMNS="100"), cwd=folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            printed = process.communicate(timeout=LONGEST if command.startswith("dovetail explore ") else None)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            printed = process.communicate()[0]
            stopped = process.returncode in (130, -signal.SIGINT) and "what was found so far follows" in printed
            return printed, 0 if stopped else process.returncode
    return printed.replace(str(tool), "dovetail"), process.returncode


def matches(shown, printed):
    """Whether the output is as shown, where a line "..." stands for any lines."""
    parts = re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)
    return re.fullmatch(".*".join(map(re.escape, parts)), printed, re.DOTALL) is not None


def check(block, tool, folder, problems):
    """The block as it is now, and how many of its commands were run."""
    commands = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    lines = [part.partition("\n") for part in commands]
    if MEASURES.search(block) or not all(
            command.startswith((*SHOWN, "dovetail ")) for command, _, _ in lines):
        return block, 0
    now = ""
    for command, _, shown in lines:
        printed, code = run(command, tool, folder)
        if not command.startswith(SHOWN):
            if code != 0:
                problems.append(f"exit code {code} of: {command}\n{printed}")
            printed = shown
        now += "$ " + command + "\n" + (shown if matches(shown, printed) else printed)
    return now, len(commands)


def check_page(page, tool, problems):
    """The text of a page as it is now, and how many of its commands were run."""
    text = page.read_text()
    name = page.relative_to(ROOT).as_posix()
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for linked in ("docs", "models", "scripts", "tests"):
            (pathlib.Path(folder) / linked).symlink_to(ROOT / linked)
        for block in BLOCK.findall(text):
            found = []
            now, commands = check(block, tool, folder, found)
            problems += [f"{name}: {problem}" for problem in found]
            count += commands
            if now == block:
                continue
            problems += difflib.unified_diff(block.splitlines(), now.splitlines(), name,
                                             "printed now", lineterm="", n=0)
            text = text.replace(block, now)
    return text, count


def check_links(page):
    """Links to files and headings of this project that are not there."""
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, heading = target.partition("#")
        if "://" in target:
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{page.relative_to(ROOT)}: no file {target}"
        elif heading and heading not in headings(file.read_text()):
            yield f"{page.relative_to(ROOT)}: no heading {target}"


def headings(text):
    """The anchors of a page's headings."""
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


def main():
    words = [word for word in sys.argv[1:] if word != "--update"]
    folders = [word for word in words if not word.endswith(".md")]
    pages = [pathlib.Path(word).resolve() for word in words if word.endswith(".md")]
    tool = (ROOT / (folders[0] if folders else "build") / "dovetail").resolve()
    if not tool.exists():
        sys.exit(f"{tool}: build first")
    problems, count = [], 0
    pages = pages or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for page in pages:
        problems += check_links(page)
        text, commands = check_page(page, tool, problems)
        count += commands
        if "--update" in sys.argv and text != page.read_text():
            page.write_text(text)
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{count} commands of {len(pages)} pages run, "
          f"{'some differ' if problems else 'all as shown'}")
    if problems and "--update" not in sys.argv:
        sys.exit(1)


main()
