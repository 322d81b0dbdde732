#!/usr/bin/env python3
"""Opens the HTML reports of dovetail in a real browser: headless Chromium, driven by scripts/checks/browser.py.

    scripts/checks/check_report.py [--tool build/dovetail] [--keep DIR] [--only NAME,...]

Makes the reports of real commands, one of them with hostile names, and for each of them, in light and in dark, at 400 and
at 1600 pixels: no message in the console, nothing loaded, every chart drawn and not empty, nothing wider than the page, text that
can be told from its ground. Then hover, zoom by button, key and wheel, and the keyboard's way through the marks. Figures on the page are
those of the command's own JSON. --keep leaves the reports, screenshots and a PDF. --only explore,host: these alone, without what others write.

The last line counts. Exit codes: 0 all passed, 1 something failed, 77 no browser here (a skip, with the reason).

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from browser import Browser, BrowserError, missing

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRACE = ROOT / "tests/recordings/kineto/traces/ddp-resnet50-a100x2-rank0.json.gz"
CPU_TRACE = TRACE.parent / "cpu-only-gloo.json.gz"
FSDP2_TRACES = " ".join(str(TRACE.parent / f"h100/fsdp2-rank{rank}.json.gz") for rank in (0, 1))
HOSTILE = "</script><script>document.title='hostile'</script><img src=x onerror=\"document.title='hostile'\">&amp;@TITLE@"

ANSWERED = {"explore", "plan", "jobs", "fsdp", "pipeline", "full", "host", "diagnose", "diagnose-fsdp2"}  # pages of commands that begin with set, gives, left

PAPER = 688  # px: A4 less the margins of the page

STEP = "step.json"  # the workload of TRACE, whose step the host bounds
PLAN_CHARTS = ["timeline", "causes", "stages", "sensitivity"]
# Report -> the command that makes it, and the charts that it must have. Later ones read what earlier ones write.
REPORTS = {
    "explore": ("explore --workload mlp-1000mbit --html explore.html --json", ["curve", "timeline", *PLAN_CHARTS]),
    "plan": ("plan --workload ./hostile.program --cluster a100x2_nv12 --policy per-tensor -o hostile.plan --trace predicted.trace"
             " --html plan.html", PLAN_CHARTS),
    "predict": ("predict --plan hostile.plan --html predict.html", PLAN_CHARTS),
    "run": ("run --plan hostile.plan --ranks 2 --rounds 1 --steps 4 --trace measured.trace --html run.html", ["run", "timeline", "causes"]),
    "compare": ("compare predicted.trace measured.trace --html compare.html",
                ["steps", "comparison", "timeline", "timeline", "causes"]),
    "report": ("report hostile.plan predicted.trace measured.trace -o report.html",
               ["steps", "comparison", "timeline", "timeline", *PLAN_CHARTS]),
    "jobs": ("explore --job llama3_8b:tp=2,pp=2,dp=2,gbs=8 --cluster h100x8 --html jobs.html", ["jobs", "stages", "timeline", "causes"]),
    "fsdp": ("explore --workload gpt2 --cluster a100x8 --policies fsdp --html fsdp.html", ["prefetch", "timeline", *PLAN_CHARTS]),
    "pipeline": ("plan --job qwen3_0.6b:pp=2,dp=4,gbs=16 --cluster h100x8 --html pipeline.html", PLAN_CHARTS),
    "full": ("plan --job llama3_8b:dp=8,gbs=8 --cluster h100x8 --html full.html", PLAN_CHARTS),  # what a GPU has no room for
    "host": (f"explore --workload {STEP} --html host.html", ["curve", "timeline", *PLAN_CHARTS]),
    "diagnose": (f"diagnose {TRACE} --html diagnose.html", ["diagnosis", "what-if", "settings", "timeline", "timeline", "timeline"]),
    "diagnose-fsdp2": (f"diagnose {FSDP2_TRACES} --html diagnose-fsdp2.html", ["diagnosis", "what-if", "timeline", "timeline", "timeline", "timeline"]),
    "diagnose-cpu": (f"diagnose {CPU_TRACE} --html diagnose-cpu.html", []),  # nothing to draw: no empty chart
}
# The section that a page begins with: its answer.
FIRST = {"jobs": "jobs", "fsdp": "plan", "pipeline": "plan", "full": "plan", "host": "plan", "explore": "plan", "plan": "plan", "predict": "plan", "run": "run", "compare": "comparison", "report": "plan", "diagnose": "diagnosis", "diagnose-fsdp2": "diagnosis",
         "diagnose-cpu": "diagnosis"}


def hostile_program():
    """A step of two layers whose names are markup."""
    names = [f"w{i}{HOSTILE}" for i in (1, 2)]
    tensors = [{"name": name, "kind": "parameter"} for name in names] + [{"name": f"{name}.grad", "kind": "gradient"} for name in names] + [
        {"name": "loss", "kind": "activation"}]
    work = {"kind": "gemm", "m": 256, "n": 256, "k": 256}
    update = {"kind": "memory", "traffic_bytes": 786432, "work_flop": 131072}
    return {
        "schema": "dovetail.program/1", "kind": "program", "name": f"two {HOSTILE}", "world_size": 2,
        "groups": [{"id": 0, "name": "dp", "ranks": [0, 1]}],
        "tensors": [{"id": i, "dtype": "f32", "shape": [256, 256], **tensor} for i, tensor in enumerate(tensors)],
        "ops": [{"id": 0, "name": f"forward {HOSTILE}", "phase": "forward", "dtype": "f32", "work": work, "reads": names, "writes": ["loss"]},
                *({"id": 2 - i, "name": f"{names[i]}.backward", "phase": "backward", "dtype": "f32", "work": work, "reads": ["loss"],
                   "writes": [f"{names[i]}.grad"]} for i in (1, 0)),
                *({"id": 4 - i, "name": f"{names[i]}.update", "phase": "optimizer", "dtype": "f32", "work": update,
                   "reads": [f"{names[i]}.grad"], "writes": [names[i]], "effect": {"kind": "update", "elementwise": True}} for i in (1, 0))],
        "reductions": [{"gradient": f"{names[i]}.grad", "group": "dp", "op": "average"} for i in (1, 0)]}


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def expect(self, fact, what):
        if fact:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}", flush=True)
        return fact

    def equal(self, found, wanted, what):
        return self.expect(found == wanted, f"{what}: found {found!r}, expected {wanted!r}")


# What a chart draws: how many marks that have a size, and how wide they reach.
CHARTS = """
return [...document.querySelectorAll('svg[data-chart]')].map(svg => {
  const marks = [...svg.querySelectorAll('rect.span, rect.part, circle, path[stroke]')]
    .map(mark => mark.getBBox()).filter(box => box.width > 0 || box.height > 0);
  const box = svg.getBoundingClientRect();
  return {kind: svg.dataset.chart, label: svg.getAttribute('aria-label'), role: svg.getAttribute('role'),
          width: box.width, height: box.height, marks: marks.length,
          reach: marks.length ? Math.max(...marks.map(box => box.x + box.width)) - Math.min(...marks.map(box => box.x)) : 0,
          texts: [...svg.querySelectorAll('text')].filter(text => text.textContent.trim() !== '').length};
});"""

# The least contrast (WCAG) of text against the ground.
CONTRAST = """
const parse = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
const light = ([r, g, b]) => { const part = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
const ground = light(parse(getComputedStyle(document.body).backgroundColor));
const ratio = colour => { const own = light(parse(colour)); return (Math.max(own, ground) + 0.05) / (Math.min(own, ground) + 0.05); };
const inks = [...document.querySelectorAll('h1, p, a, td, th, summary, .faint, .kind')].map(node => getComputedStyle(node).color)
  .concat([...document.querySelectorAll('svg text:not(.inside)')].map(node => getComputedStyle(node).fill));
const style = getComputedStyle(document.documentElement);
const on = [...document.querySelectorAll('svg text.inside')].filter(node => node.textContent !== '').map(node => {
  const paint = document.createElement('i'); paint.style.color = style.getPropertyValue(node.dataset.on); document.body.append(paint);
  const [ink, fill] = [light(parse(getComputedStyle(node).fill)), light(parse(getComputedStyle(paint).color))]; paint.remove();
  return (Math.max(ink, fill) + 0.05) / (Math.min(ink, fill) + 0.05); });
return Math.min(...inks.map(ratio), ...on);"""


def check_look(browser, checks, name, wanted, width, scheme):
    what = f"{name}, {scheme}, {width} px"
    browser.show_as(width, 1000, scheme)
    # Two frames on, charts have heard of new colours, too.
    browser.run("window.settled = false; requestAnimationFrame(() => requestAnimationFrame(() => { window.settled = true; }))")
    browser.wait_for(f"return window.settled && [...document.querySelectorAll('svg[data-chart]')].length >= {len(wanted)} && "
                     "[...document.querySelectorAll('svg[data-chart]')].every(svg => svg.childNodes.length > 0 && "
                     "Math.abs(svg.viewBox.baseVal.width - svg.getBoundingClientRect().width) < 2)")
    charts = browser.run(CHARTS)
    checks.equal(sorted(chart["kind"] for chart in charts), sorted(wanted), f"{what}: charts")
    for chart in charts:
        kind = f"{what}: chart {chart['kind']}"
        checks.expect(chart["marks"] >= 2 and chart["texts"] >= 3, f"{kind}: {chart['marks']} marks, {chart['texts']} texts")
        checks.expect(chart["reach"] > 0.2 * chart["width"], f"{kind}: marks reach over {chart['reach']} of {chart['width']} px")
        checks.expect(len(chart["label"] or "") > 20, f"{kind}: has no name for screen readers")
    overflow = browser.run("return document.documentElement.scrollWidth - innerWidth")
    checks.expect(overflow <= 0, f"{what}: the page is {overflow} px wider than its window")
    contrast = browser.run(CONTRAST)
    checks.expect(contrast >= 4.5, f"{what}: text with a contrast of {contrast:.2f}, wanted 4.5")
    checks.equal(browser.console(), [], f"{what}: console")


def tip(browser):
    return browser.run("const box = document.getElementById('tip'); return box.hidden ? '' : box.innerText")


def check_arrows(browser, checks, name, selector):
    """The arrow keys go from mark to mark, and Escape leaves them."""
    browser.keys(selector, Browser.RIGHT, Browser.RIGHT)
    first = tip(browser)
    browser.keys(selector, Browser.DOWN)
    checks.expect(first and tip(browser) and tip(browser) != first, f"{name}: keys say {first!r}, then {tip(browser)!r}")
    browser.keys(selector, Browser.ESCAPE)
    checks.equal(tip(browser), "", f"{name}: after Escape")


def check_curve(browser, checks):
    browser.move_to("svg[data-chart=curve] g.chosen circle:nth-of-type(3)")
    shown = tip(browser)
    checks.expect("PyTorch DDP" in shown and "bucket size" in shown and "ms" in shown, f"curve: hover says {shown!r}")
    check_arrows(browser, checks, "curve", "svg[data-chart=curve]")
    checks.expect(browser.run("return document.querySelectorAll('svg[data-chart=curve] .flat').length") == 1, "curve: no flat range")
    said = "return document.querySelector('#curve p[aria-live]').textContent"
    before = browser.run(said)
    browser.click("#curve .controls button:last-child")
    after = browser.run(said)
    pressed = browser.run("return document.querySelectorAll('#curve button[aria-pressed=true]').length")
    checks.expect(pressed == 1 and before != after and "Flat range" in after, "curve: a click on a rule does not show its flat range")
    for level in ("our-plan", "lower-bound"):
        checks.expect(browser.run("return document.querySelectorAll(arguments[0]).length", f"svg[data-chart=curve] .{level}") == 1, f"curve: no {level}")


def check_tools(browser, checks):
    """Tables go out as Markdown, charts as PNG, and a click on a stall goes to what it waits for."""
    for selector in ("#sensitivity .wide + .tools button", "#curve figure .tools button"):
        browser.click(selector)
        browser.wait_for(f"return document.querySelector('{selector}').textContent === 'done'")
    checks.expect(browser.run("return document.querySelectorAll('svg[data-chart=curve] circle.usual').length") == 1, "curve: no mark of the usual setting")
    browser.click("#timeline svg rect.span.stall")
    checks.expect("collective" in tip(browser), f"timeline: a click on a stall shows {tip(browser)!r}")
    browser.keys("#timeline svg", Browser.ESCAPE)


def count_of(browser, selector):
    return browser.run("return document.querySelectorAll(arguments[0]).length", selector)


def text_of(browser, selector):
    return browser.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)


def check_fsdp(browser, checks):
    """Curves over prefetching: a ring on the default, memory on a second axis, and no bucket size of another framework."""
    checks.equal(count_of(browser, "#curve"), 0, "fsdp: curves over bucket sizes")
    chart = "svg[data-chart=prefetch]"
    checks.equal((count_of(browser, f"{chart} circle.usual"), count_of(browser, f"{chart} path.memory")), (1, 2), "fsdp: ring, and curves of memory")
    checks.expect(count_of(browser, f"{chart} .second") >= 3, "fsdp: no second axis")
    checks.expect("FSDP2's default" in text_of(browser, f"{chart} text.usual"), "fsdp: the ring has no name")
    browser.move_to(f"{chart} circle:nth-of-type(3)")
    checks.expect("gathered at a time" in tip(browser) and "ms" in tip(browser), f"fsdp: hover says {tip(browser)!r}")
    check_arrows(browser, checks, "fsdp", chart)


def check_pipeline(browser, checks):
    """The bubble is named, messages are arrows, nothing is left of the step's start, and the memory of each rank has a lane."""
    names = browser.run("return [...document.querySelectorAll('#timeline svg text.inside')].map(text => text.textContent)")
    checks.expect("bubble" in names, f"pipeline: no bubble among {names}")
    for mark, words in (("rect.span.bubble", "for another stage"), ("path.arrow:nth-of-type(5)", "rank 4"), ("g.memory", "activations")):
        browser.move_to(f"#timeline svg {mark}")
        checks.expect(words in tip(browser), f"pipeline: hover over {mark} says {tip(browser)!r}")
    check_capacity(browser, checks, "pipeline", 2, "a device has 79.1 GiB")
    checks.expect(not [tick for tick in axis_of(browser) if tick.startswith("\u2212")], f"pipeline: begins before its step: {axis_of(browser)}")


# Of each device's line: its words, its contrast (WCAG) against the ground, and whether it lies within its chart and between the
# top and the bottom of its lane.
CAPACITY = """
const light = colour => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
return [...document.querySelectorAll('#timeline svg g.memory')].map(lane => {
  const [line, text] = [lane.querySelector('line.capacity'), lane.querySelector('text.capacity')];
  const [ink, ground] = [getComputedStyle(line).stroke, getComputedStyle(document.body).backgroundColor].map(light);
  const [at, areas, svg] = [line, lane, line.ownerSVGElement].map(node => node.getBoundingClientRect());
  return {words: text.textContent, dashed: getComputedStyle(line).strokeDasharray !== 'none', contrast: (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05),
          seen: at.top > svg.top && at.bottom < areas.bottom && at.width > svg.width / 2, label: text.getBoundingClientRect().top >= svg.top};
});"""


def check_capacity(browser, checks, name, lanes, words):
    """A dashed line for what a device has, with its words, in each lane of memory."""
    for scheme in ("dark", "light"):
        browser.show_as(1600, 1000, scheme)
        found = browser.run(CAPACITY)
        checks.equal(len(found), lanes, f"{name}, {scheme}: lanes of memory")
        for lane in found:
            checks.expect(lane["words"].startswith(words) and lane["dashed"] and lane["contrast"] >= 4.5 and lane["seen"] and lane["label"],
                          f"{name}, {scheme}: line of what a device has: {lane}")


def check_full(browser, checks):
    check_capacity(browser, checks, "full", 1, "does not fit: 105 GiB above 79.1 GiB")
    label = browser.run("return document.querySelector('#timeline svg').getAttribute('aria-label')")
    checks.expect("does not fit" in label, f"full: its chart does not say so: {label!r}")


def check_answer(browser, checks, name, printed):
    """A page begins with the lines that its command prints first, in the same words."""
    lines = browser.run("return [...document.querySelectorAll('h1 + dl.answer > div')].map(line => [line.querySelector('dt').textContent, "
                        "...[...line.querySelectorAll('dd, dd > *')].filter(node => node.children.length === 0).map(node => node.textContent)])")
    if name not in ANSWERED:
        checks.equal(lines, [], f"{name}: lines of an answer")
    elif printed.startswith("{"):
        answer = json.loads(printed)["answer"]
        checks.equal([lines[0][1:], lines[2][1]], [answer["set"] or [f"nothing: {answer['why_nothing']}"], answer["left"]], f"{name}: answer")
    else:
        said = " ".join(f"{head}: {' '.join(rest)}" for head, *rest in lines)
        checks.equal(" ".join(said.split()), " ".join(printed.split("\n\n")[0].split()), f"{name}: answer")


def check_host(browser, checks):
    said = text_of(browser, ".answer strong")
    checks.expect(said == "nothing: the host is what the step waits for", f"host: says {said!r}")
    checks.equal(count_of(browser, "#paste"), 0, "host: files and lines to paste")


def axis_of(browser):
    return browser.run("return [...document.querySelectorAll('#timeline svg .axis .tick text')].map(text => text.textContent)")


def check_timeline(browser, checks):
    browser.move_to("#timeline svg rect.span.collective")
    shown = tip(browser)
    checks.expect("bucket" in shown and "bytes" in shown and "gradients" in shown, f"timeline: hover says {shown!r}")
    for mark, words in (("rect.span.stall", "waits for bucket"), ("rect.span.gap", "cause"), ("path.ready", "gradient ready at"), ("path.critical", "critical path: rank")):
        browser.move_to(f"#timeline svg {mark}")
        checks.expect(words in tip(browser), f"timeline: hover over {mark} says {tip(browser)!r}")
    ticks = [axis_of(browser)]
    browser.click("#timeline .controls button:nth-child(1)")
    ticks.append(axis_of(browser))
    browser.keys("#timeline svg", "+", "+")
    ticks.append(axis_of(browser))
    browser.run("const svg = document.querySelector('#timeline svg'); const box = svg.getBoundingClientRect(); svg.dispatchEvent(new WheelEvent("
                "'wheel', {deltaY: -300, ctrlKey: true, bubbles: true, cancelable: true, clientX: box.left + box.width / 2, clientY: box.top + 30}))")
    ticks.append(axis_of(browser))
    checks.expect(len({tuple(entry) for entry in ticks}) == 4, f"timeline: zoom by button, key and wheel shows {ticks}")
    browser.keys("#timeline svg", "0")
    checks.equal(axis_of(browser), ticks[0], "timeline: after key 0")
    check_arrows(browser, checks, "timeline", "#timeline svg")


def check_moving(browser, checks):
    """The zoomed timeline is moved by mouse and finger and zoomed by two fingers; a finger on a mark shows its note."""
    browser.keys("#timeline svg", "0", "+", "+")
    ticks = [axis_of(browser)]
    for move in (lambda: browser.drag("#timeline svg", -120), lambda: browser.touch("#timeline svg", [0], [120], [260]),
                 lambda: browser.touch("#timeline svg", [-30, 30], [-60, 60], [-120, 120])):
        move()
        ticks.append(axis_of(browser))
    checks.expect(len({tuple(entry) for entry in ticks}) == 4, f"timeline: moving by mouse, finger and two fingers shows {ticks}")
    browser.keys("#timeline svg", "0")
    browser.touch("#timeline svg rect.span.collective", [0])
    checks.expect("bucket" in tip(browser), f"timeline: a finger on a collective shows {tip(browser)!r}")


# Everything that can be used, in the order of the page; what is folded away cannot.
USABLE = """
const usable = [...document.querySelectorAll('a[href], button, summary, [tabindex]')].filter(node => node.tabIndex >= 0 &&
  (node.tagName === 'SUMMARY' || !node.closest('details:not([open])')));"""


def check_tab(browser, checks, name):
    """Tab goes through all that can be used, in the order of the page, and shows where it is."""
    count = browser.run(f"{USABLE} window.passed = []; document.addEventListener('focusin', event => window.passed.push("
                        "[usable.indexOf(event.target), getComputedStyle(event.target).outlineStyle, event.target.getBoundingClientRect().width])); "
                        "return usable.length")
    browser.keys("a.skip", *[Browser.TAB] * (count - 1))
    passed = browser.run("return window.passed")
    checks.equal([entry[0] for entry in passed], list(range(count)), f"{name}: what Tab reaches, in order")
    checks.expect(all(entry[1] != "none" and entry[2] > 0 for entry in passed), f"{name}: Tab does not show where it is: {passed}")


# What a printer would cut or nobody could read.
PRINTED = """
const small = [...document.querySelectorAll('svg[data-chart]')].map(svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width * 12);
const cut = [...document.querySelectorAll('.wide, pre, figure, dd')].filter(node => node.offsetParent !== null && node.scrollWidth > node.clientWidth + 1)
  .map(node => `${node.tagName} ${node.getAttribute('aria-label') ?? node.textContent.slice(0, 40)}: ${node.scrollWidth} of ${node.clientWidth} px`);
const shown = selector => [...document.querySelectorAll(selector)].filter(node => node.offsetParent !== null).length;
return {letters: Math.min(...small), cut, useless: shown('nav, .controls:not(.rules), details:not([open])'), legend: shown('.controls.rules button'),
        wide: document.documentElement.scrollWidth - innerWidth};"""


def check_print(browser, checks, name):
    browser.show_as(PAPER, 1000, media="print")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    printed = browser.run(PRINTED)
    checks.expect(printed["letters"] >= 11, f"{name}: printed letters of charts have {printed['letters']} px")
    checks.equal((printed["cut"], printed["useless"]), ([], 0), f"{name}: printed: cut, and without use")
    checks.expect(printed["wide"] <= 0, f"{name}: printed: {printed['wide']} px wider than the paper")
    if name == "explore":
        checks.expect(printed["legend"] >= 4, f"{name}: printed: curves without their names")
    browser.run("dispatchEvent(new Event('afterprint'))")


def check_explore_figures(browser, checks, printed):
    shown = browser.run("return JSON.parse(document.getElementById('report').textContent)")
    checks.equal(shown["results"][0], printed, "explore: the figures in the page")
    checks.equal(shown["found"]["step_us"], printed["best"]["step_us"], "explore: step of our plan")
    points = {(point["policy"], point["step_us"]) for curve in shown["curves"] for point in curve["points"]}
    swept = [row for row in printed["rows"] if row["rule"] == "torch-ddp" and row["threshold_bytes"]]
    checks.expect(len(swept) > 10, f"explore: {len(swept)} swept rows")
    for row in swept:
        checks.expect((row["policy"], row["step_us"]) in points, f"explore: row {row['policy']} is on no curve")
    for line in shown["timelines"]:
        parts = line["critical_path"]
        covered = sum(part["end_us"] - part["start_us"] for part in parts)
        checks.expect(parts and abs(covered - line["step_us"]) < 0.01, f"explore: the critical path covers {covered} of {line['step_us']} us")
    moments = browser.run("return [...document.querySelectorAll('#timeline svg[data-chart]')].map(svg => "
                          "[...svg.querySelectorAll('.axis .tick')].map(tick => tick.textContent + tick.getAttribute('transform')).join())")
    checks.expect(len(moments) == 2 and moments[0] == moments[1], "explore: its two timelines have one scale of time")
    text = browser.run("return document.body.innerText")
    checks.expect(f"{printed['best']['step_us'] / 1000:#.4g} ms" in text, "explore: the best step does not stand on the page")


def make(tool, folder, command, checks):
    ended = subprocess.run([str(tool), *command.split()], cwd=folder, text=True, check=False, timeout=300,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    checks.expect(ended.returncode == 0, f"dovetail {command} ends with {ended.returncode}: {ended.stderr}")
    return ended.stdout


def check_report(browser, checks, folder, name, wanted, printed, keep):
    page = pathlib.Path(folder) / f"{name}.html"
    browser.show_as(1600, 1000)
    browser.open(page)
    every = [(1600, "light"), (400, "dark"), (1600, "dark"), (400, "light")]
    for width, scheme in every if name == "explore" else every[:2]:
        check_look(browser, checks, name, wanted, width, scheme)
        if keep:
            browser.screenshot(pathlib.Path(folder) / f"{name}-{scheme}-{width}.png")
    browser.show_as(1600, 1000)
    checks.equal(browser.run("return document.querySelector('main > section').id"), FIRST[name], f"{name}: first section")
    check_answer(browser, checks, name, printed)
    if wanted:
        browser.wait_for("return document.querySelector('svg[data-chart]').getBoundingClientRect().width > 1000")
    checks.equal(browser.run("return performance.getEntriesByType('resource').length"), 0, f"{name}: things loaded")
    checks.expect(browser.run("return document.title") not in ("", "hostile"), f"{name}: title")
    check_tab(browser, checks, name)
    if name == "explore":
        check_curve(browser, checks)
        check_tools(browser, checks)
        check_timeline(browser, checks)
        check_moving(browser, checks)
    for own, check in (("fsdp", check_fsdp), ("pipeline", check_pipeline), ("full", check_full), ("host", check_host)):
        if name == own:
            check(browser, checks)
    if name == "plan":
        browser.move_to("#timeline svg path.ready")
        checks.expect(HOSTILE in tip(browser), f"plan: a hostile name is shown as {tip(browser)!r}")
    if wanted:
        check_print(browser, checks, name)
    if keep:
        browser.pdf(pathlib.Path(folder) / f"{name}.pdf")
    checks.equal(browser.console(), [], f"{name}: console after all")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", default=os.environ.get("DOVETAIL_TOOL", str(ROOT / "build" / "dovetail")))
    parser.add_argument("--keep", help="folder for the files, instead of a temporary one")
    parser.add_argument("--only", type=lambda words: words.split(","), default=list(REPORTS), help="of " + ", ".join(REPORTS))
    options = parser.parse_args()
    if unknown := set(options.only) - set(REPORTS):
        parser.error(f"no report {', '.join(sorted(unknown))}")
    if missing():
        print(f"skipped: report: {missing()}")
        return 77
    checks = Checks()
    with tempfile.TemporaryDirectory() as temporary, Browser(1600, 1000) as browser:
        folder = pathlib.Path(options.keep or temporary)
        browser.has_touch()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hostile.program").write_text(json.dumps(hostile_program()))
        make(pathlib.Path(options.tool).resolve(), folder, f"import kineto {TRACE} -o {STEP}", checks)
        for name in options.only:
            command, wanted = REPORTS[name]
            printed = make(pathlib.Path(options.tool).resolve(), folder, command, checks)
            try:
                check_report(browser, checks, folder, name, wanted, printed, options.keep)
                if name == "explore":
                    check_explore_figures(browser, checks, json.loads(printed))
            except BrowserError as error:
                checks.expect(False, f"{name}: {error}; console: {browser.console()}")
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
