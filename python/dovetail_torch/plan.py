"""Plans as `dovetail plan` writes them (schema "dovetail.plan/1"), as far as training needs them.

A gradient is called "NAME.grad" there; here it goes by the name of its parameter, as
model.named_parameters() has it.

SPDX-License-Identifier: Apache-2.0
"""

import json
import os
import re
from dataclasses import dataclass, field, replace
from typing import Dict, List, Optional, Tuple

SCHEMA = "dovetail.plan/1"
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64"}


class PlanError(ValueError):
    """The plan does not fit the model, or cannot be applied here."""


class PlanMismatch(RuntimeError):
    """The plan was applied, and the step that followed did something else."""


@dataclass(frozen=True)
class Part:
    """Elements [first, first + count) of one parameter's gradient."""
    parameter: str
    first: int
    count: int


@dataclass(frozen=True)
class Bucket:
    """One collective; fields and words as in schedule/schedule.h."""
    parts: Tuple[Part, ...]
    bytes: int
    group: str
    collective: str  # "all-reduce" or "reduce-scatter"
    mode: str        # "view" or "copy"
    stream: str      # "inline", "comm0", ...
    launch: object   # "when-ready", "after-backward", ("in-batch", n) or ("after", parameter)
    wait: str        # "first-use", "end-of-backward", "before-next-batch" or "at-launch"
    max_ctas: int = 0

    @property
    def names(self):
        return [part.parameter for part in self.parts]


@dataclass(frozen=True)
class Plan:
    source: str
    policy: str
    world_size: int
    buckets: Tuple[Bucket, ...]  # in launch order
    numel: Dict[str, int]        # of every parameter, in gradient-ready order
    dtype: Dict[str, str]        # "float32", ...
    groups: Dict[str, List[int]] = field(default_factory=dict)  # ranks
    micro_steps: int = 1
    sync: str = "last"
    gather: str = "after-update"  # of sharded parameters, or "next-forward"
    predicted_us: Optional[float] = None

    @property
    def ready_order(self):
        return list(self.numel)

    def is_whole(self, bucket):
        return all(part.first == 0 and part.count == self.numel[part.parameter] for part in bucket.parts)


def _parameter(tensor):
    return tensor[:-len(".grad")] if tensor.endswith(".grad") else tensor


def _launch(value, writer):
    if isinstance(value, str):
        return value
    if "in_batch" in value:
        return ("in-batch", int(value["in_batch"]))
    op = value.get("after_op")
    if op is None:
        raise PlanError(f"a bucket's launch is {value}: expected when-ready, after-backward, in_batch or after_op")
    if op not in writer:
        raise PlanError(f"a bucket is launched after op {op}, which makes no gradient: nothing in PyTorch tells "
                        "when it ends")
    return ("after", writer[op])


def _bucket(value, numel, writer):
    parts = []
    for gradient in value["gradients"]:
        if isinstance(gradient, str):
            name = _parameter(gradient)
            parts.append(Part(name, 0, numel[name]))
        else:
            parts.append(Part(_parameter(gradient["tensor"]), int(gradient["first"]), int(gradient["count"])))
    return Bucket(tuple(parts), int(value["bytes"]), value["group"], value["collective"], value["mode"],
                  value["stream"], _launch(value["launch"], writer), value["wait"], int(value.get("max_ctas", 0)))


def own_name(name):
    """A parameter's name in the model: torch.compile puts "_orig_mod." before those of what it compiled."""
    return name.replace("_orig_mod.", "")


def modules_of(model):
    """{name in the model: module}, of a compiled module what torch.compile made of it."""
    modules = {}
    for name, module in model.named_modules():
        modules.setdefault(".".join(part for part in name.split(".") if part != "_orig_mod"), module)
    return modules


def read_plan(plan):
    """A Plan from a path, from the text's parsed object, or a Plan as it is. Raises PlanError."""
    if isinstance(plan, Plan):
        return plan
    source = "the plan"
    if not isinstance(plan, dict):
        source = os.fspath(plan)
        try:
            with open(source, encoding="utf-8") as file:
                plan = json.load(file)
        except (OSError, ValueError) as error:
            raise PlanError(f"{source}: {error}") from error
    if not isinstance(plan, dict) or plan.get("schema") != SCHEMA:
        raise PlanError(f"{source}: expected schema {SCHEMA!r}, as dovetail plan writes it")
    try:
        return _plan(source, plan)
    except (KeyError, TypeError, AttributeError) as error:
        raise PlanError(f"{source}: not a complete plan: {error!r}") from error


def _plan(source, value):
    program = value["program"]
    if int(program.get("stages", 1)) != 1:
        raise PlanError(f"{source}: a pipeline of {program['stages']} stages is more than dovetail_torch applies")
    tensors = {tensor["name"]: tensor for tensor in program["tensors"]}
    numel, dtype = {}, {}
    for reduction in program["reductions"]:
        tensor = tensors[reduction["gradient"]]
        count = 1
        for length in tensor["shape"]:
            count *= int(length)
        numel[_parameter(tensor["name"])] = count
        dtype[_parameter(tensor["name"])] = DTYPES[tensor["dtype"]]
    writer = {op["name"]: _parameter(op["writes"][0]) for op in program["ops"]
              if op["phase"] == "backward" and op["writes"] and _parameter(op["writes"][0]) in numel}
    buckets = tuple(_bucket(bucket, numel, writer) for bucket in value["buckets"])
    merge = value.get("merge", {})
    return Plan(source, value["policy"], int(program["world_size"]), buckets, numel, dtype,
                {group["name"]: list(group["ranks"]) for group in program["groups"]},
                int(merge.get("micro_steps", 1)), merge.get("sync", "last"),
                value.get("parameters", "after-update"),
                value.get("predicted", {}).get("step_us"))


# What a gradient of a trace is called, which has no names (schedule/place_names.h).
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
_PLACE = re.compile(r"(bucket\d+\.gradient\d+|all-reduce \d+)")


def has_places_only(plan):
    """Whether the plan was made of a trace: its gradients have sizes and an order, and no names."""
    return bool(plan.numel) and all(_PLACE.fullmatch(name) for name in plan.numel)


def with_names(plan, parameters):
    """The plan with the names of a module's parameters, and a sentence on how far they are certain.

    parameters: [(name, elements, dtype)] in the order of definition. Gradients become ready in about the reverse of that
    order: those of one size get the names of that size in the reverse order. Raises PlanError where sizes do not fit.
    """
    # A trace tells the bytes of an element, not whether two of them are float16 or bfloat16.
    places, types = {}, {name: dtype for name, _, dtype in parameters}
    for name, numel, dtype in reversed(parameters):
        places.setdefault((numel, _BYTES.get(dtype)), []).append(name)
    names = {}
    for gradient in plan.ready_order:
        key = (plan.numel[gradient], _BYTES[plan.dtype[gradient]])
        if not places.get(key):
            raise PlanError(f"{plan.source} is about another model: no parameter of {key[0]} elements of {key[1]} bytes is "
                            f"left for its gradient number {len(names)}")
        names[gradient] = places[key].pop(0)
    left = [name for group in places.values() for name in group]
    if left:
        raise PlanError(f"{plan.source} is about another model: it lacks {', '.join(left[:3])}" +
                        (f" and {len(left) - 3} more" if len(left) > 3 else ""))
    backwards = [name for name, _, _ in reversed(parameters)]
    if [names[gradient] for gradient in plan.ready_order] == backwards:
        how = "their sizes are those of the reverse order of definition, one by one"
    else:
        sizes = [(numel, dtype) for _, numel, dtype in parameters]
        alone = sum(sizes.count(size) == 1 for size in sizes)
        how = (f"{alone} of {len(sizes)} have a size of their own; the others may be exchanged with others of their size")
    rename = lambda part: replace(part, parameter=names[part.parameter])
    launch = lambda value: ("after", names[value[1]]) if isinstance(value, tuple) and value[0] == "after" else value
    buckets = tuple(replace(bucket, parts=tuple(rename(part) for part in bucket.parts), launch=launch(bucket.launch))
                    for bucket in plan.buckets)
    named = replace(plan, buckets=buckets, numel={names[key]: value for key, value in plan.numel.items()},
                    dtype={names[key]: types[names[key]] for key in plan.dtype})
    return named, f"the plan was made of a trace, which has no names: mapped to parameters by order and size; {how}"
