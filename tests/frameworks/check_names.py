"""Maps a plan whose gradients have places only to a module's parameters, as dovetail_torch.apply does.

    check_names.py PLAN PYTHON        PLAN: one with names; PYTHON: the folder of dovetail_torch

SPDX-License-Identifier: Apache-2.0
"""

import importlib.util
import json
import pathlib
import sys

spec = importlib.util.spec_from_file_location("plan", pathlib.Path(sys.argv[2]) / "dovetail_torch" / "plan.py")
module = importlib.util.module_from_spec(spec)
sys.modules["plan"] = module
spec.loader.exec_module(module)

text = pathlib.Path(sys.argv[1]).read_text()
named = module.read_plan(json.loads(text))
if module.has_places_only(named):
    sys.exit("a plan with names counts as one without")
for place, name in enumerate(named.ready_order):
    text = text.replace(json.dumps(name + ".grad"), json.dumps(f"bucket0.gradient{place}.grad"))
    text = text.replace(json.dumps(name), json.dumps(f"bucket0.gradient{place}"))
plan = module.read_plan(json.loads(text))
if not module.has_places_only(plan):
    sys.exit(f"no places in {plan.ready_order[:3]}")

# In half precision, which a trace cannot tell from bfloat16; in the order of definition.
defined = [(name, named.numel[name], named.dtype[name]) for name in reversed(named.ready_order)]
mapped, how = module.with_names(plan, defined)
if mapped.ready_order != named.ready_order or mapped.buckets != named.buckets or "one by one" not in how:
    sys.exit(f"mapped to {mapped.ready_order[:5]}: {how}")
mixed = [(name, numel, "bfloat16") for name, numel, _ in defined]
try:
    module.with_names(plan, mixed)
    sys.exit("elements of another size were not noticed")
except module.PlanError:
    pass
swapped = defined[::-1]
mapped, how = module.with_names(plan, swapped)
if "have a size of their own" not in how or sorted(mapped.numel) != sorted(named.numel):
    sys.exit(f"another order: {how}")
for other in (defined[1:], defined + [("more", 12345, "float32")]):
    try:
        module.with_names(plan, other)
        sys.exit("another model was not noticed")
    except module.PlanError:
        pass
