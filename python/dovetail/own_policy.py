"""A policy of your own: a Python function that groups gradients into buckets, verified and priced like any other.

SPDX-License-Identifier: Apache-2.0
"""

import json
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Union, overload

from dovetail._tool import Document, InputError
from dovetail.evaluator import Evaluator
from dovetail.inputs import Job, Machine, Workload, machine_words
from dovetail.results import Plan


@dataclass(frozen=True)
class Gradient:
    """A gradient that a rank owes, as a policy sees it."""
    name: str
    bytes: int
    elements: int
    ready_us: float  # from the start of the step, where nothing but compute runs, on the slowest rank
    kind: int  # those of one bucket have one: process group, type and reduction


Groups = Iterable[Iterable[Union[Gradient, str]]]
Grouping = Callable[[List[Gradient]], Groups]


@dataclass(frozen=True)
class OwnPolicy:
    """What `policy` makes of a function."""
    function: Grouping
    name: str
    mode: str  # "view": gradients lie in the bucket; "copy": they are packed into it
    wait: str  # where compute waits: "first-use" or "end-of-backward"

    def __call__(self, gradients: List[Gradient]) -> Groups:
        return self.function(gradients)


@overload
def policy(function: Grouping) -> OwnPolicy: ...
@overload
def policy(function: None = None, *, name: Optional[str] = None, mode: str = "view",
           wait: str = "first-use") -> Callable[[Grouping], OwnPolicy]: ...


def policy(function: Optional[Grouping] = None, *, name: Optional[str] = None, mode: str = "view",
           wait: str = "first-use") -> Union[OwnPolicy, Callable[[Grouping], OwnPolicy]]:
    """Makes a policy of a function from gradients to groups.

        @dv.policy
        def pairs(gradients):                     # a list of Gradient, in the order in which they are ready
            return [gradients[i:i + 2] for i in range(0, len(gradients), 2)]

        dv.plan("resnet50", "a100x8", policy=pairs)
        dv.explore("resnet50", "a100x8", policies=["ddp", pairs])
        dv.plan(dv.Job("llama3_8b", tp=8, dp=2, gbs=16), "h100x16", policy=pairs)   # without stages, gradients all-reduced

    A group is a bucket; groups travel in the order in which they are given, each as soon as its last gradient is ready and those
    before it have been launched. Each gradient stands in one group, as a Gradient or by name. InputError says what is wrong with
    them. Options: name (of its row), mode and wait as `--mode` and `--wait` have them.
    """
    def made(given: Grouping) -> OwnPolicy:
        called = name or str(getattr(given, "__name__", "own"))
        if "/" in called:
            raise InputError(f"policy: the name {called!r} has a /, which no file's name may have")
        return OwnPolicy(given, called, mode, wait)

    return made if function is None else made(function)


class _Site:
    """A workload or a job on a machine, as lines of an Evaluator say it; documents that are named nowhere become files while it asks."""

    def __init__(self, subject: Union[Job, Workload], machine: Union[Machine, str, None]) -> None:
        where = Machine(machine) if isinstance(machine, str) else machine
        self.documents: Dict[str, Document] = {}
        self.line: Dict[str, Any] = {}
        if isinstance(subject, Job):
            self.line["job"] = subject.text
        else:
            self.line["workload"] = subject.name
            if subject.document is not None:
                self.documents["workload"] = Document(subject.name, subject.document)
            for key, value in (("world", subject.world), ("layout", subject.layout), ("force", subject.force or None)):
                if value is not None:
                    self.line[key] = value
        if where is not None:
            self.line["cluster"] = where.name
            if where.document is not None:
                self.documents["cluster"] = Document(where.name, where.document)
            if where.changes:
                self.line["what_if"] = where.changes

    def ask(self, **more: Any) -> Dict[str, Any]:
        return Evaluator.shared().ask({**self.line, **more}, self.documents)


def plan_of(given: OwnPolicy, subject: Union[Job, Workload], machine: Union[Machine, str, None],
            file_name: Optional[str] = None) -> Plan:
    """The plan of the function's groups."""
    site = _Site(subject, machine)
    gradients = [Gradient(**one) for one in site.ask(want="gradients")["gradients"]]
    made = given(gradients)
    if made is None:
        raise InputError(f"the policy {given.name} returned None: a list of groups of gradients is expected")
    groups = [[one if isinstance(one, str) else one.name for one in group] for group in made]
    placement = f"per-tensor:mode={given.mode},wait={given.wait}"
    text = site.ask(want="plan", groups=groups, policy=placement)["plan"]
    document = json.loads(text)
    document["policy"] = given.name
    text = json.dumps(document, indent=1) + "\n"
    words: Sequence[Any] = ["predict", Document(f"{given.name}.json", text), *machine_words(machine)]
    return Plan(words, text, file_name if file_name is not None else f"{given.name}.json")
