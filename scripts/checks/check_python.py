#!/usr/bin/env python3
"""The Python package as a user has it: built as a wheel, installed into a fresh environment, and tried there.

    scripts/checks/check_python.py [--rooms BUILD] [--keep DIR] [--only WORD,...] [PAGE_OR_NOTEBOOK...]

  wheel      pip builds it (optimised, with ccache where that is installed; objects stay in build-python), and it holds every
             machine, workload and public measurement
  tests      tests/python/*.py, outside the source tree
  types      mypy --strict over the installed package, and over a program that uses it
  pages      the Python of docs/python.md and docs/agents.md, block after block
  notebooks  docs/notebooks/*.ipynb from the first cell to the last

--rooms BUILD: compiles the module alone and takes the rest from this build folder (its DOVETAIL_LIBRARY is on): seconds in place of
minutes, but for this machine's processor, and linked with what is installed here. As it is shipped: without.
What cannot be fetched here (pandas, mypy, the MCP SDK, nbclient) is skipped by name. --keep DIR: the environment is made there and
used again. The last line counts. Exit codes: 0 all passed, 1 something failed, 77 no package can be fetched here (a skip).

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD_NEEDS = ["scikit-build-core>=0.10", "nanobind>=2.4", "ninja"]
EXTRAS = {"pandas": ["pandas"], "mypy": ["mypy", "pandas-stubs"], "MCP SDK": ["mcp>=1.9"],
          "notebooks": ["nbclient", "ipykernel", "matplotlib", "pandas"]}
PARTS = ["wheel", "tests", "types", "pages", "notebooks"]
PROGRAM = """
import dovetail as dv

best = dv.explore(dv.Job("llama3_8b", dp_shard=8, seq=8192, gbs=8), dv.Machine("h100x8")).best
if best is not None and best.mfu is not None:
    share: float = best.mfu
plan: dv.Plan = dv.plan(dv.Workload("resnet50"), "a100x8", policy="ddp")
step: float = dv.predict(plan)[0].step_us
rows: int = len(dv.explore("resnet50", "a100x8", policies=["ddp"]).rows)
ratio: float = dv.compare(dv.Machine("a100x16_ib"), "h100x16_tcpxo").rows[0].ratio
moved: dv.Difference = dv.compare(plan, plan)


@dv.policy(mode="copy")
def own(gradients: list[dv.Gradient]) -> list[list[dv.Gradient]]:
    return [gradients]
"""

counts = {"passed": 0, "failed": 0, "skipped": 0}


def told(verdict, what, began):
    counts[verdict] += 1
    print(f"check_python: {what}: {verdict}, {time.monotonic() - began:.0f} s", flush=True)


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=False, **options)


def check(what, *words, **options):
    """Whether the command ends with exit code 0; what it said is shown where it does not."""
    began = time.monotonic()
    ended = run(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if ended.returncode != 0:
        print("\n".join(ended.stdout.splitlines()[-60:]))
    told("passed" if ended.returncode == 0 else "failed", what, began)
    for reason in re.findall(r"\.\.\. skipped '?(.*?)'?$", ended.stdout, re.MULTILINE):
        counts["skipped"] += 1
        print(f"check_python: skipped: {reason}")
    return ended.returncode == 0


def environment(folder):
    """A fresh environment's Python; None with the reason where its packages cannot be had."""
    python = folder / "bin" / "python"
    if not python.exists():
        made = run(sys.executable, "-m", "venv", folder, capture_output=True, text=True)
        if made.returncode != 0:
            return None, f"{sys.executable} cannot make an environment (Debian: apt-get install python3-venv)"
    fetched = run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *BUILD_NEEDS, capture_output=True, text=True)
    if fetched.returncode != 0:
        return None, "no Python packages can be fetched here: " + fetched.stderr.strip().splitlines()[-1]
    return python, ""


# What a wheel must hold, by the folder that it is taken from.
DATA = {"models/clusters": "share/dovetail/models/clusters", "models/workloads": "share/dovetail/models/workloads",
        "models/rates/gemm": "share/dovetail/models/rates/gemm",
        "answers/validation/data": "share/dovetail/answers/validation/data", "python/dovetail": "", "python/dovetail_torch": "../dovetail_torch"}


def lacking(wheel):
    """What the wheel should hold and does not."""
    held = set(zipfile.ZipFile(wheel).namelist())
    for folder, place in DATA.items():
        for path in sorted((ROOT / folder).rglob("*")):
            name = os.path.normpath(f"dovetail/{place}/{path.relative_to(ROOT / folder)}")
            if path.is_file() and "__pycache__" not in name and name not in held:
                yield name


def build_wheel(python, folder, rooms):
    env = dict(os.environ, CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count()), PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    faster = []
    if shutil.which("ccache"):
        env.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
    else:
        faster = ["-C", "cmake.define.DOVETAIL_PCH=ON"]
    objects = ROOT / "build-python"
    if rooms:
        objects = rooms.resolve() / "python"
        faster = ["-C", f"cmake.define.DOVETAIL_ROOMS={rooms.resolve()}", "-C", "build.targets=_core"]
    for old in folder.glob("*.whl"):
        old.unlink()
    if not check("wheel", python, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation", "-w", folder, "-C",
                 f"build-dir={objects}", *faster, env=env):
        return None
    wheel = next(folder.glob("dovetail-*.whl"))
    print(f"check_python: {wheel.name}: {wheel.stat().st_size / 2**20:.1f} MiB")
    missing = list(lacking(wheel))
    print("".join(f"check_python: not in the wheel: {name}\n" for name in missing), end="")
    told("failed" if missing else "passed", "files of the wheel", time.monotonic())
    installed = check("installed", python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--force-reinstall", "--no-deps",
                      wheel)
    return wheel if installed else None


def fetch_extras(python):
    """Those that are here, by name."""
    here = set()
    for name, packages in EXTRAS.items():
        began = time.monotonic()
        ended = run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages, capture_output=True, text=True)
        if ended.returncode == 0:
            here.add(name)
        else:
            told("skipped", f"{name}: cannot be fetched here", began)
    return here


def python_of(page):
    """The Python of a page, one program with a line number for each block."""
    blocks = []
    for found in re.finditer(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        line = page.read_text(encoding="utf-8")[:found.start(1)].count("\n")
        blocks.append((line, found.group(1)))
    program = ["BLOCKS = " + repr(blocks), "for line, text in BLOCKS:", "    exec(compile('\\n' * line + text, PAGE, 'exec'), globals())"]
    return f"PAGE = {str(page)!r}\n" + "\n".join(program) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rooms", type=pathlib.Path, metavar="BUILD")
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--only", help="of " + ", ".join(PARTS))
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="pages and notebooks; default: all")
    arguments = parser.parse_args()
    parts = arguments.only.split(",") if arguments.only else PARTS
    temporary = None if arguments.keep else tempfile.TemporaryDirectory(prefix="dovetail-python-")
    folder = arguments.keep or pathlib.Path(temporary.name)
    folder.mkdir(parents=True, exist_ok=True)
    python, why = environment(folder.resolve() / "venv")
    if python is None:
        print(f"check_python: skipped: {why}")
        return 77
    if "wheel" in parts and build_wheel(python, folder, arguments.rooms) is None:
        return finish()
    here = fetch_extras(python)
    env = dict(os.environ, DOVETAIL_SOURCE=str(ROOT), DOVETAIL_PROGRESS="off", MPLBACKEND="Agg",
               PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    env.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory(prefix="dovetail-check-") as work:
        here_notebooks = pathlib.Path(work) / "docs" / "notebooks"  # what a page or notebook writes stays out of the tree
        here_notebooks.mkdir(parents=True)
        for data in ("tests", "models", "traces", "answers"):  # which pages and notebooks read
            (pathlib.Path(work) / data).symlink_to(ROOT / data)
        inside = {"cwd": work, "env": env}
        if "tests" in parts:
            for test in sorted((ROOT / "tests" / "python").glob("*_test.py")):
                check(test.name, python, test, "-v", **inside)
        if "types" in parts and "mypy" in here:
            (pathlib.Path(work) / "program.py").write_text(PROGRAM, encoding="utf-8")
            check("types of a program", python, "-m", "mypy", "--strict", "program.py", **inside)
            check("types of the package", python, "-m", "mypy", "--strict", "--follow-imports=silent", ROOT / "python" / "dovetail",
                  "--exclude", "torch.py|mcp.py", **inside)
        pages = [page for page in arguments.files if page.suffix == ".md"] or [ROOT / "docs" / "python.md", ROOT / "docs" / "agents.md"]
        if "pages" in parts:
            for page in pages:
                program = pathlib.Path(work) / f"{page.stem}_page.py"
                program.write_text(python_of(page), encoding="utf-8")
                check(page.name, python, program, **inside)
        notebooks = [file for file in arguments.files if file.suffix == ".ipynb"] or sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
        if "notebooks" in parts and "notebooks" in here:
            for notebook in notebooks:
                check(notebook.name, python, "-c", RUN_NOTEBOOK, notebook.resolve(), cwd=here_notebooks, env=env)
    return finish()


RUN_NOTEBOOK = """
import sys, nbformat
from nbclient import NotebookClient
NotebookClient(nbformat.read(sys.argv[1], as_version=4), timeout=120, kernel_name="python3").execute()
"""


def finish():
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
