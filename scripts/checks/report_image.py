#!/usr/bin/env python3
"""Makes the pictures of the report in docs/images, as headless Chromium shows it.

    scripts/checks/report_image.py [--tool build/dovetail] [-o docs/images]

report.png opens README: curve and timeline, light. curve-light-1600.png, timeline-dark-1600.png and page-dark-400.png show the page at
the two ends of what it is made for. The figures are those of `explore --workload mlp-1000mbit`, a measured step; each file stays below
150 kB.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

from browser import Browser, missing

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGEST = 150_000  # bytes
TIMELINE = "svg[data-chart=timeline]"
# Name -> width, colours, the element where the picture begins, and the one where it ends.
IMAGES = {
    "report.png": (1160, "light", "#curve", TIMELINE),
    "curve-light-1600.png": (1600, "light", "#curve", "#curve"),
    "timeline-dark-1600.png": (1600, "dark", "#timeline", "#timeline"),
    "page-dark-400.png": (400, "dark", "#stages", "#curve"),
}


def take(browser, path, width, scheme, first, last):
    browser.show_as(width, 1000, scheme)
    browser.wait_for("return [...document.querySelectorAll('svg[data-chart]')].every(svg => "
                     "Math.abs(svg.viewBox.baseVal.width - svg.getBoundingClientRect().width) < 2)")
    edge = "return document.querySelector(arguments[0]).getBoundingClientRect()[arguments[1]] + scrollY"
    top, bottom = browser.run(edge, first, "top"), browser.run(edge, last, "bottom") + 8
    browser.screenshot(path, (0, top, width, bottom - top))
    size = path.stat().st_size
    print(f"{path}: {size} bytes")
    return size <= LARGEST


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default=str(ROOT / "build" / "dovetail"))
    parser.add_argument("-o", "--output", default=str(ROOT / "docs/images"), help="folder for the pictures")
    options = parser.parse_args()
    if missing():
        sys.exit(f"report_image.py: {missing()}")
    with tempfile.TemporaryDirectory() as folder, Browser(1600, 1000) as browser:
        page = pathlib.Path(folder) / "report.html"
        subprocess.run([pathlib.Path(options.tool).resolve(), "explore", "--workload", "mlp-1000mbit", "--html", page],
                       check=True, stdout=subprocess.DEVNULL)
        browser.open(page)
        browser.wait_for(f"return document.querySelectorAll('{TIMELINE} rect.span').length > 10")
        small = [take(browser, pathlib.Path(options.output) / name, *what) for name, what in IMAGES.items()]
    if not all(small):
        sys.exit(f"report_image.py: larger than {LARGEST} bytes")


if __name__ == "__main__":
    main()
