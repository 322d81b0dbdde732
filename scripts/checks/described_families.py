#!/usr/bin/env python3
"""What dovetail.torch describes of a small model of every family that a job can name, beside what is kept for the tests.

    scripts/checks/described_families.py [--python PYTHON] [--update]

tests/models/networks/data/families.json holds configurations in transformers' words, and kernels, bytes and FLOP of a training step by
phase and class, as `describe` counts them on the meta device: loss as in transformers' causal models, bf16 weights, no cache of keys
and values, as its Trainer trains. tests/models/networks/families_test.cc holds jobs to them. With --update the counts are rewritten;
else each that differs is a line. Exit codes: 0 alike (or written), 1 not, 77 no such PyTorch and transformers here.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/models/networks/data/families.json"
VERSIONS = "PyTorch 2.11, transformers 5.17"


def counted(program):
    """{phase: {class: [kernels, bytes or FLOP of products, FLOP of attention]}}"""
    phases = {"forward": {}, "backward": {}}
    for op in program["ops"]:
        if op["phase"] not in phases:
            continue
        for kernel in op["work"].get("kernels", [op["work"]]):
            if kernel["kind"] == "gemm":
                name, amount, flop = "product", 2 * kernel["m"] * kernel["n"] * kernel["k"] * kernel["count"], 0
            else:
                name = "attention" if "attention" in kernel else kernel.get("access", "any")
                amount, flop = kernel["traffic_bytes"], kernel["work_flop"]
            entry = phases[op["phase"]].setdefault(name, [0, 0, 0])
            for place, value in enumerate((1, amount, int(flop))):
                entry[place] += value
    return {phase: dict(sorted(classes.items())) for phase, classes in phases.items()}


def described(family):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    import dovetail_torch

    config = dict(family["config"])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config.pop("model_type"), **config), dtype=torch.bfloat16)
    model.train()
    if family.get("checkpoint"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    tokens = torch.zeros(family["samples"], family["sequence"], dtype=torch.long)
    return counted(dovetail_torch.describe(model, {"input_ids": tokens, "labels": tokens, "use_cache": False}))


def as_text(families):
    lines = []
    for family in families:
        keys = [f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in family.items()]
        lines.append("  {\n" + ",\n".join(keys) + "\n  }")
    return '{\n "counted_by": ' + json.dumps(VERSIONS) + ',\n "families": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="one that has torch and transformers, instead of this one")
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    if arguments.python:
        return subprocess.run([arguments.python, __file__, *(["--update"] if arguments.update else [])], check=False).returncode
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"described_families: skipped: {error}")
        return 77
    found = f"PyTorch {'.'.join(torch.__version__.split('.')[:2])}, transformers {'.'.join(transformers.__version__.split('.')[:2])}"
    if found != VERSIONS:
        print(f"described_families: skipped: counts are of {VERSIONS}, here is {found}")
        return 77
    sys.path.insert(0, str(ROOT / "python"))
    transformers.logging.set_verbosity_error()
    families = json.loads(DATA.read_text())["families"]
    differing = 0
    for family in families:
        phases = described(family)
        for phase, classes in phases.items():
            before = family.get(phase, {})
            for name in sorted(set(classes) | set(before)):
                if classes.get(name) != before.get(name):
                    differing += 1
                    print(f"{family['name']}, {phase}, {name}: kept {before.get(name)}, found {classes.get(name)}")
        family.update(phases)
    if arguments.update:
        DATA.write_text(as_text(families))
    print(f"described_families: {len(families)} models, {differing} counts differ{' and are written' if arguments.update else ''}")
    return 0 if arguments.update or differing == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
