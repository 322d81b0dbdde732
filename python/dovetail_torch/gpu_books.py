"""Two GPUs' books laid beside each other, or one beside the tables that dovetail ships for its device.

    $ python -m dovetail.torch compare-gpu mine.json
    mine.json: NVIDIA H100 80GB HBM3 beside the shipped tables of h100: products 4 % slower, plain passes alike; 620 W
      products                    4 % slower  -1 to +9 % in 41 rows
      ...

Rows that both have are compared by the time of the same work: a product as it is; a pass over 128 MiB; causal attention of 32
heads; of other products their rate. A section's figure is the median of its rows, alike within 2 %.

SPDX-License-Identifier: Apache-2.0
"""

import csv
import json
import os
import re
import statistics

# Bytes a second of the memory of each device that has shipped tables, as its vendor says.
DEVICES = {"a100": 2.039e12, "b200": 8e12, "gb200": 8e12, "gb300": 8e12, "h100": 3.35e12, "h200": 4.8e12, "l40s": 0.864e12}
MEASURED = "h100"  # whose passes stand for those of the others (models/rates/memory_rates.h)
ALIKE = 0.02
PASS_BYTES = 128 << 20
HEADS = 32
# What a row is found by, and which of its values tell.
SECTIONS = {"products": ("m", "n", "k"), "other_products": ("type", "of", "axis"), "passes": ("access", "dtype", "columns"),
            "attention": ("head_dim", "tokens")}
HOST_KEYS = ("run_op_us", "backward_op_us", "update_op_us")


class WrongUse(Exception):
    """What was asked cannot be done: one line."""


def _tables():
    """The folder of the shipped tables: of an installed package, or of the source tree; nothing where there is none."""
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (os.path.join(here, "..", "dovetail", "share", "dovetail", "models", "rates", "gemm"),
                   os.path.join(here, "..", "..", "models", "rates", "gemm")):
        if os.path.isfile(os.path.join(folder, "memory.csv")):
            return folder
    return None


def _lines(folder, name, device=None):
    """Rows of a table as dicts, numbers as numbers, empty cells left out; of one device where it has a column of it."""
    def value(cell):
        return float(cell) if re.fullmatch(r"[0-9.eE+-]*[0-9][0-9.eE+-]*", cell) else cell

    with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
        return [{key: value(cell) for key, cell in line.items() if cell not in ("", device) or key not in ("device", "dtype")}
                for line in csv.DictReader(file) if line.get("device", device) == device]


def shipped(device):
    """The shipped tables of a device as a book; nothing: they are not here."""
    folder = _tables()
    if folder is None:
        return None
    others = _lines(folder, "products.csv", device)
    for line in others:
        line["of"] = line.pop("case")
    return {"name": f"the shipped tables of {device}", "device": device, "memory_bytes_per_s": DEVICES[device],
            "products": _lines(folder, f"{device}.csv"), "other_products": others,
            "passes": _lines(folder, "memory.csv", device) or _lines(folder, "memory.csv", MEASURED),
            "attention": _lines(folder, "attention.csv", device)}


def read_book(path):
    """Raises WrongUse with the file and what was expected."""
    try:
        with open(path, encoding="utf-8") as file:
            book = json.load(file)
    except OSError as error:
        raise WrongUse(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise WrongUse(f"{path}: expected JSON: {error}") from None
    if not isinstance(book, dict) or book.get("schema") != "dovetail.gpu/1":
        raise WrongUse(f"{path}: expected a GPU's own book (schema dovetail.gpu/1), as dovetail.torch measure writes it")
    if book.get("device") not in DEVICES:
        raise WrongUse(f"{path}: /device: expected one of {', '.join(DEVICES)}")
    book.setdefault("memory_bytes_per_s", DEVICES[book["device"]])
    for section, keys in SECTIONS.items():
        for place, row in enumerate(book.get(section, [])):
            missing = [key for key in keys if key not in row and key not in ("dtype", "columns")]
            if missing:
                raise WrongUse(f"{path}: /{section}/{place}: missing key \"{missing[0]}\"")
    return book


def _times(section, row, memory):
    """us of the row's work, by what it is called in the answer."""
    if section == "products":
        return {"products": row["us"]}
    if section == "other_products":
        kind = row["type"] if row["of"] == "gflop" else "unaligned " + row["type"]
        return {f"products of {kind}": 1 / row["tflop_per_s"]}
    if section == "passes":
        name = " ".join(str(row[key]) for key in ("access", "dtype") if key in row)
        return {f"passes: {name}": row.get("fixed_us", 0) + 1e6 * PASS_BYTES / (row["share"] * memory)}
    flop = 2 * row["tokens"] ** 2 * row["head_dim"] * HEADS
    took = {"attention": row.get("fixed_us", 0) + flop / row["tflop_per_s"] / 1e6}
    if "backward_tflop_per_s" in row:
        took["attention backward"] = (row.get("backward_fixed_us", 0) + 2.5 * flop / row["backward_tflop_per_s"] / 1e6)
    return took


def _by_key(book, section):
    keys = SECTIONS[section]
    return {tuple(row.get(key, 0 if key == "columns" else None) for key in keys):
            _times(section, row, book["memory_bytes_per_s"]) for row in book.get(section, [])}


def ratios(book, other):
    """Times of `book` over those of `other`, of rows that both have, by what they are called, in order."""
    found = {}
    for section in SECTIONS:
        theirs = _by_key(other, section)
        for key, took in _by_key(book, section).items():
            for name, us in took.items():
                if name in theirs.get(key, {}):
                    found.setdefault(name, []).append(us / theirs[key][name])
    for key in HOST_KEYS:
        if book.get("host", {}).get(key) and other.get("host", {}).get(key):
            found[f"host: {key}"] = [book["host"][key] / other["host"][key]]
    return found


def _words(ratio):
    if abs(ratio - 1) <= ALIKE:
        return "alike"
    if ratio >= 2:
        return f"{ratio:.1f} times as long"
    return f"{100 * (ratio - 1):.0f} % slower" if ratio > 1 else f"{100 * (1 - ratio):.0f} % less time"


def _line(name, values):
    line = f"  {name:30} {_words(statistics.median(values)):20}"
    if len(values) > 1:
        line += f" {100 * (min(values) - 1):+.0f} to {100 * (max(values) - 1):+.0f} % in {len(values)} rows"
    return line.rstrip()


def compared(path, other_path=None):
    """Lines that say how the GPU of a book differs from another one, or from the shipped tables. Raises WrongUse."""
    book = read_book(path)
    other = read_book(other_path) if other_path else shipped(book["device"])
    if other is None:
        raise WrongUse("the shipped tables are not beside this package: name a second book to compare with")
    found = ratios(book, other)
    if not found:
        raise WrongUse(f"{path}: no row of it is one of {other_path or other['name']}")
    main = [f"{said} {_words(statistics.median(found[name]))}" for name, said in (
        ("products", "products"), ("passes: plain", "plain passes"), ("attention", "attention")) if name in found]
    power = book.get("notes", {}).get("power")
    lines = [f"{path}: {book['name']} beside {other['name']}: " + ", ".join(main) + (f"; {power}" if power else "")]
    lines += [_line(name, values) for name, values in found.items()]
    if not other_path:
        if other["device"] != MEASURED:
            lines.append(f"  the shipped passes are those of {MEASURED}, as shares of the memory's nominal rate")
        host = book.get("host", {})
        lines += [f"  {key}: {host[key]:g} (the tables have no host)" for key in HOST_KEYS if key in host]
    return lines
