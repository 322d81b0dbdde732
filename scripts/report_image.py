#!/usr/bin/env python3
"""Makes docs/images/report.png, the picture that opens README: curve and timeline of a report, as headless Chromium shows it.

    scripts/report_image.py [--tool build/dovetail] [--dark] [-o docs/images/report.png]

The figures are those of `explore --workload mlp-1000mbit`, a measured step; the file stays below 300 kB.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

from browser import Browser, missing

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 1160
LARGEST = 300_000  # bytes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default=str(ROOT / "build" / "dovetail"))
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("-o", "--output", default=str(ROOT / "docs/images/report.png"))
    options = parser.parse_args()
    if missing():
        sys.exit(f"report_image.py: {missing()}")
    with tempfile.TemporaryDirectory() as folder, Browser(WIDTH, 1000) as browser:
        subprocess.run([pathlib.Path(options.tool).resolve(), "explore", "--workload", "mlp-1000mbit", "--html", "report.html"],
                       cwd=folder, check=True, stdout=subprocess.DEVNULL)
        browser.show_as(WIDTH, 1000, "dark" if options.dark else "light")
        browser.open(pathlib.Path(folder) / "report.html")
        browser.wait_for("return document.querySelectorAll('svg[data-chart=timeline] rect.span').length > 10")
        # From the curve to the end of the first timeline.
        top = browser.run("return document.getElementById('curve').getBoundingClientRect().top + scrollY")
        bottom = browser.run("return document.querySelector('svg[data-chart=timeline]').getBoundingClientRect().bottom + scrollY + 8")
        browser.screenshot(options.output, (0, top, WIDTH, bottom - top))
    size = pathlib.Path(options.output).stat().st_size
    print(f"{options.output}: {size} bytes")
    if size > LARGEST:
        sys.exit(f"report_image.py: larger than {LARGEST} bytes")


if __name__ == "__main__":
    main()
