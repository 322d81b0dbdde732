"""Measures what kernels take on this GPU and writes it as the GPU's own book, schema dovetail.gpu/1.

    $ python -m dovetail.torch measure -o mine.json          # two minutes; --seconds for more or fewer
    $ dovetail explore --job llama3_8b:dp_shard=8,gbs=64 --cluster h100x8 --what-if gpu=mine.json

Rows are measured in the order of what they decide: the host, products of bf16, passes over memory, attention, other products.
What there is no time or no memory for, and what this PyTorch does not have, is left out and named in the notes, and the
shipped tables hold for it. Nothing of the GPU is changed: clock and power are as they are, and noted.

SPDX-License-Identifier: Apache-2.0
"""

import datetime
import os
import re
import subprocess
import sys
import threading
import time

import torch

from dovetail_torch import gpu_kernels, host_times
from dovetail_torch.capture import _write
from dovetail_torch.gpu_books import DEVICES, WrongUse
from dovetail_torch.meter import Meter, is_out_of_memory

SUSTAINED_SECONDS = 2
SUSTAINED_SIDE = 8192
INTERRUPTED = "interrupted"
LISTS = ("products", "other_products", "passes", "attention")
# The least that a file can hold, which no GPU falls short of.
LEAST = {"tflop_per_s": 1e-3, "backward_tflop_per_s": 1e-3, "share": 1e-4, "us": 1e-3}
# B300 has the products of GB300 (models/clusters/b300.json).
OF_NAME = (("GB300", "gb300"), ("B300", "gb300"), ("GB200", "gb200"), ("B200", "b200"), ("H200", "h200"), ("H100", "h100"),
           ("A100", "a100"), ("L40S", "l40s"))


def device_of(name):
    """Whose shipped tables stand behind a GPU of this name; nothing: of none."""
    return next((device for part, device in OF_NAME if re.search(rf"(?<![A-Za-z]){part}(?![0-9])", name)), None)


def _device(given, name):
    if given is not None and given not in DEVICES:
        raise WrongUse(f"--device: expected one of {', '.join(DEVICES)}, found \"{given}\"")
    found = given or device_of(name)
    if found is None:
        raise WrongUse(f"\"{name}\" is no GPU that has shipped tables: say with --device whose tables are to stand behind it, "
                       f"one of {', '.join(DEVICES)}")
    return found


def _nominal(device, kind):
    """Bytes a second of its memory: twice the clock, as it says it itself; else what the vendor says."""
    if kind == "cuda":
        properties = torch.cuda.get_device_properties(0)
        clock, width = getattr(properties, "memory_clock_rate", 0), getattr(properties, "memory_bus_width", 0)
        if clock and width:
            return 2e3 * clock * width / 8
    return DEVICES[device]


def _host_rows():
    yield gpu_kernels.Row("host", "issue", host_times.step_times)
    yield gpu_kernels.Row("host", "updates", host_times.update_times)


def rows(kind, nominal, half_bytes):
    """All that could be measured, the most important first."""
    extents = gpu_kernels.Extents() if kind == "cuda" else gpu_kernels.ON_PROCESSORS
    yield from _host_rows()
    yield from gpu_kernels.product_rows(extents)
    yield from gpu_kernels.pass_rows(extents, nominal, half_bytes)
    yield from gpu_kernels.attention_rows(extents)
    yield from gpu_kernels.other_product_rows(extents)


class _Found:
    """What was measured, and what was not, by the reason."""

    def __init__(self):
        self.lists = {name: [] for name in LISTS}
        self.host = {}
        self.skipped = {}

    def add(self, section, values):
        short = [key for key, least in LEAST.items() if values.get(key, least) < least]
        if short:
            raise gpu_kernels.Absent(f"{short[0]} is below {LEAST[short[0]]:g}")
        rounded = {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in values.items()}
        if section == "host":
            self.host.update(rounded)
        else:
            self.lists[section].append(rounded)

    def skip(self, row, reason):
        self.skipped.setdefault(reason, {}).setdefault(row.section, []).append(row.name)

    def notes(self):
        """Of each reason the rows, by section."""
        said = []
        for reason, sections in self.skipped.items():
            left_out = "; ".join(f"{section}: {', '.join(names)}" for section, names in sections.items())
            said.append(f"{reason}: {left_out}")
        return {"skipped": ". ".join(said)} if said else {}


def _reason(error):
    said = str(error).strip() or type(error).__name__
    return "out of memory" if is_out_of_memory(error) else said.splitlines()[0][:120]


def _measure_row(meter, row, found):
    if meter.left() <= 0:
        found.skip(row, "no time left")
        return
    try:
        found.add(row.section, row.run(meter))
        meter.release()
    except (RuntimeError, gpu_kernels.Absent) as error:
        found.skip(row, _reason(error))


def _run(meter, all_rows, say):
    """Interrupted, it ends with what there is."""
    found, section, began = _Found(), None, time.monotonic()
    for place, row in enumerate(all_rows):
        if row.section != section:
            section = row.section
            say(f"{section}: row {place + 1} of {len(all_rows)}, {time.monotonic() - began:.0f} s, "
                f"{max(0, meter.left()):.0f} s left")
        try:
            _measure_row(meter, row, found)
        except KeyboardInterrupt:
            meter.ends = time.monotonic()
            found.skip(row, INTERRUPTED)
    return found


def _read_state():
    """(MHz, W, limit in W) as nvidia-smi says them now; nothing where it does not."""
    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    which = f"GPU-{uuid}".replace("GPU-GPU-", "GPU-") if uuid else os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    try:
        said = subprocess.run(["nvidia-smi", "-i", which, "--format=csv,noheader,nounits",
                               "--query-gpu=clocks.sm,power.draw,power.limit"], capture_output=True, text=True, timeout=10,
                              check=False).stdout
        return [float(cell) for cell in said.strip().split(",")]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _sustained(meter):
    """Notes on products that follow each other for two seconds, which only power and heat hold back."""
    a, b = (meter.normal(SUSTAINED_SIDE, SUSTAINED_SIDE) for _ in range(2))
    alone = meter.us([lambda: torch.mm(a, b.t())], "sustained product")
    seen = []
    reader = threading.Thread(target=lambda: (time.sleep(SUSTAINED_SECONDS / 2), seen.append(_read_state())))
    reader.start()
    began, count = time.monotonic(), 0
    while reader.is_alive() or time.monotonic() - began < SUSTAINED_SECONDS:
        for _ in range(20):
            torch.mm(a, b.t())
        meter.wait()
        count += 20
    us = 1e6 * (time.monotonic() - began) / count
    reader.join()
    notes = {"sustained": f"products of {SUSTAINED_SIDE} x {SUSTAINED_SIDE} x {SUSTAINED_SIDE} take {us / alone:.3f} times as "
                          f"long for {SUSTAINED_SECONDS} s on end as in a row"}
    if seen[0] is not None:
        clock, power, limit = seen[0]
        notes.update(clock=f"{clock:.0f} MHz in these", power=f"{power:.0f} W in these, limit {limit:.0f} W")
    return notes


def _software(kind):
    said = f"PyTorch {torch.__version__}"
    if kind != "cuda":
        return said
    cudnn = torch.backends.cudnn.version()
    return said + f", CUDA {torch.version.cuda}" + (f", cuDNN {cudnn}" if cudnn else "")


def _method(meter):
    if not meter.is_gpu:
        return {"method": "on processors, tiny, f32 for bf16: only to try the way, no GPU's figures"}
    notes = {"method": "medians under CUDA graphs, inputs beyond the L2 cache, normal random numbers"}
    if meter.uncaptured:
        notes["without graphs"] = ", ".join(sorted(meter.uncaptured))
    return notes


def _name(kind):
    return torch.cuda.get_device_name(0) if kind == "cuda" else "processors"


def measure(path, *, seconds=120, device=None, kind="cuda", say=lambda line: print(line, file=sys.stderr, flush=True)):
    """Writes the file and returns what is in it. `kind`: cuda, or cpu, which only tries the way. Raises WrongUse."""
    if kind == "cuda" and not torch.cuda.is_available():
        raise WrongUse("PyTorch sees no GPU here (torch.cuda.is_available()); --device-type cpu only tries the way")
    name = _name(kind)
    known = _device(device, name)
    nominal, began = _nominal(known, kind), time.monotonic()
    meter = Meter(kind, seconds - (SUSTAINED_SECONDS + 1 if kind == "cuda" else 0))
    say(f"{name}: shipped tables of {known} stand behind it; {seconds:g} s")
    found = _run(meter, list(rows(kind, nominal, torch.empty(0, dtype=meter.half).element_size())), say)
    notes = {"software": _software(kind), **_method(meter), **found.notes()}
    if meter.is_gpu and INTERRUPTED not in found.skipped:
        try:
            notes.update(_sustained(meter))
        except RuntimeError as error:
            notes["sustained"] = f"not measured: {_reason(error)}"
    book = {"schema": "dovetail.gpu/1", "kind": "gpu", "name": name, "device": known, "origin": "own measurement",
            "date": datetime.date.today().isoformat(), "notes": notes, "memory_bytes_per_s": nominal}
    if meter.is_gpu:
        book["memory_bytes"] = torch.cuda.get_device_properties(0).total_memory
    book.update((key, value) for key, value in found.lists.items() if value)
    if found.host:
        book["host"] = {"kind": "async", **found.host}
    _write(path, book)
    say(f"{path}: {sum(map(len, found.lists.values()))} rows in {time.monotonic() - began:.0f} s" +
        (f"; left out: {found.notes()['skipped']}" if found.skipped else ""))
    return book
