"""The commands as functions: each makes the words of a command line and reads the document that it gives.

SPDX-License-Identifier: Apache-2.0
"""

import os
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type, Union, overload

from dovetail._tool import Document, InputError, Word, call, document_of, flags, made_file
from dovetail.inputs import Job, Machine, PathLike, Subject, Trace, Workload, machine_words, machines_words, subject_of
from dovetail.own_policy import OwnPolicy, plan_of
from dovetail.results import (AnyComparison, AnyExploration, Comparison, Diagnosis, Difference, Exploration, Explorations, Export,
                              JobExploration, MachineComparison, Plan, Predictions)

MachineLike = Union[Machine, str, None]
PolicyLike = Union[str, OwnPolicy, Plan]
Comparable = Union[Machine, Plan, Trace, PathLike]
Sizes = Union[str, int, Sequence[Union[str, int]], None]


_ENDINGS = {"torchtitan": ".toml", "deepspeed": ".json"}  # of the files of targets that are no Python


def _size(value: Union[str, int]) -> str:
    return f"{value}B" if isinstance(value, int) else value


def _sizes(value: Sizes) -> Optional[str]:
    if value is None or isinstance(value, str):
        return value
    return _size(value) if isinstance(value, int) else ",".join(_size(one) for one in value)


def _list(value: Any) -> List[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _plan_words(subject: Union[Job, Workload], machine: MachineLike, policies: Sequence[PolicyLike]) -> Tuple[List[str], List[Word]]:
    """The policies that have names, and the words of those that are plans."""
    named: List[str] = []
    words: List[Word] = []
    for policy in policies:
        if isinstance(policy, str):
            named.append(policy)
            continue
        if not isinstance(policy, (OwnPolicy, Plan)):
            raise InputError(f"policies: {policy!r} is no policy: a name, a plan, or a function with @dovetail.policy")
        words += ["--plan", policy.as_word() if isinstance(policy, Plan)
                  else Document(policy.name, plan_of(policy, subject, machine).text)]  # its row is called as it is
    return named, words


@overload
def explore(subject: Job, cluster: MachineLike, **options: Any) -> JobExploration: ...
@overload
def explore(subject: Union[Workload, Trace, str], cluster: MachineLike = None, *,
            policies: Union[PolicyLike, Sequence[PolicyLike], None] = None, thresholds: Sizes = None,
            points: Optional[int] = None, framework: Optional[str] = None, **options: Any) -> Exploration: ...
@overload
def explore(subject: Sequence[Union[Workload, str]], cluster: Union[MachineLike, Sequence[Union[Machine, str]]], *,
            policies: Union[PolicyLike, Sequence[PolicyLike], None] = None, thresholds: Sizes = None,
            points: Optional[int] = None, framework: Optional[str] = None, **options: Any) -> Explorations: ...


def explore(subject: Any, cluster: Any = None, *, policies: Any = None, thresholds: Sizes = None,
            points: Optional[int] = None, framework: Optional[str] = None, **options: Any) -> AnyExploration:
    """What every policy and bucket size costs on a machine, the best of them, and a lower bound; of a Job its variants.

    subject     a Job, a Workload or its name, a Trace; or a list of workloads, for all pairs with a list of machines
    cluster     a Machine or its name; a workload that was captured brings its own
    policies    names as --policies takes them ("ddp", "torch-ddp:cap=25MiB"), plans, own policies; None: what is comparable
    thresholds  bucket sizes: "1MiB:64MiB", ["1MiB", "25MiB"], or numbers of bytes; points: how many of a range
    framework   whose settings are compared: "torch", "megatron", ... (--framework)
    options     first_bucket, mode, wait, yes: those of the command line

    Returns an Exploration, for a Job a JobExploration, for lists an Explorations.
    """
    subjects = [subject_of(one) for one in _list(subject)]
    machines = _list(cluster)
    if isinstance(subjects[0], Job):
        if len(subjects) > 1 or len(machines) > 1:
            raise InputError("explore: one job on one machine at a time")
        words: List[Word] = ["explore", *subjects[0]._words(), *machine_words(machines[0])]
        words += flags(policies=policies, thresholds=_sizes(thresholds), points=points, framework=framework, **options)
        return JobExploration(words, document_of(words))
    words = ["explore"]
    for one in subjects:
        words += one._words()
    words += machines_words(machines)
    named: List[str] = []
    plans: List[Word] = []
    if policies is not None:
        if len(subjects) > 1 and any(not isinstance(one, str) for one in _list(policies)):
            raise InputError("explore: a plan is of one workload: give one")
        named, plans = _plan_words(subjects[0], machines[0], _list(policies))
    words += plans
    words += flags(policies=",".join(named), thresholds=_sizes(thresholds), points=points, framework=framework, **options)
    found = document_of(words)
    several = found["kind"] == "explorations"
    return Explorations(words, found) if several else Exploration(words, found)


def plan(subject: Subject, cluster: MachineLike = None, policy: Optional[PolicyLike] = None, name: str = "plan.json") -> Plan:
    """The schedule of one policy, verified and priced; None: the best that is known (exact), or what a job decides.

    A policy of your own (dovetail.policy) gives its groups; a Plan is laid on another capture of the same model.
    """
    given = subject_of(subject)
    if isinstance(policy, OwnPolicy):
        return plan_of(policy, given, cluster, name)
    words: List[Word] = ["plan", *given._words(), *machine_words(cluster)]
    words += ["--plan", policy.as_word()] if isinstance(policy, Plan) else flags(policy=policy)
    return Plan(words, call([*words, "--json"]), name)


def _plan_word(given: Union[Plan, PathLike]) -> Word:
    return given.as_word() if isinstance(given, Plan) else os.fspath(given)


def predict(plans: Union[Plan, PathLike, Sequence[Union[Plan, PathLike]]], cluster: Any = None,
            workload: Optional[Workload] = None, **options: Any) -> Predictions:
    """Simulates plans on machines: a row for each plan on each machine, with exposed time, breakdown and critical path.

    cluster   a Machine or its name, or a list of them; None: each plan's own
    workload  other durations of the same model
    options   trace, perfetto, costs (files to write), steps: those of the command line
    """
    words: List[Word] = ["predict", *[_plan_word(one) for one in _list(plans)]]
    words += machines_words(_list(cluster))
    if workload is not None:
        words += workload._words()
    words += flags(**options)
    return Predictions(words, document_of(words))


def diagnose(trace: Union[Trace, PathLike], framework: str = "torch", **options: Any) -> Diagnosis:
    """Why a recorded step is slow, from profiler traces; with what each setting of the framework would give.

    options: collective_pattern, step, unprofiled_step ("15ms", measured without the profiler), trace (a Perfetto file to write), as on the
    command line.
    """
    given = trace if isinstance(trace, Trace) else Trace(trace)
    words: List[Word] = ["diagnose", *given.files, *flags(framework=framework, **options)]
    return Diagnosis(words, document_of(words))


def export(what: Union[Plan, Job, PathLike], to: str, path: Optional[PathLike] = None, cluster: MachineLike = None) -> Export:
    """A plan or a job in the words of a framework ("torch", "horovod", "megatron", "torchtitan", ...), with what that gives up.

    path: the file to write; None: nowhere, the text is in the result.
    """
    words: List[Word] = ["export"]
    words += what._words() if isinstance(what, Job) else [_plan_word(what)]
    words += ["--to", to, *machine_words(cluster)]
    name = f"{to}_plan{_ENDINGS.get(to, '.py')}" if path is None else os.path.basename(os.fspath(path))
    text, report = made_file(words, "-o", name)
    made = Export(text, report, None)
    if path is not None:
        made.save(path)
    return made


def _compared_word(given: Comparable) -> Word:
    if isinstance(given, Machine):
        return given._word()
    if isinstance(given, Plan):  # as it is predicted
        return Document(given.name, made_file(["predict", given.as_word()], "--trace", "trace.json")[0])
    if isinstance(given, Trace):
        if len(given.files) != 1:
            raise InputError(f"compare: {given} is of {len(given.files)} ranks: name the file of one of them")
        return given.files[0]
    return os.fspath(given)


@overload
def compare(first: Machine, second: Union[Machine, PathLike]) -> MachineComparison: ...
@overload
def compare(first: Plan, second: Plan, **options: Any) -> Difference: ...
@overload
def compare(first: Comparable, second: Comparable, **options: Any) -> AnyComparison: ...


def compare(first: Comparable, second: Comparable, **options: Any) -> AnyComparison:
    """Two of a kind beside each other.

    traces    files of predict, plan and run: a predicted one beside its measurement is a Comparison, any others are a Difference,
              what moved between them; two profiler traces are a Difference of their last steps
    plans     each as it is predicted: two of them are a Difference, one beside the trace of its run is a Comparison
    machines  a MachineComparison: the bus bandwidth of every collective that both have measured
    options   perfetto: a file to write with both traces
    """
    words: List[Word] = ["compare", _compared_word(first), _compared_word(second), *flags(**options)]
    found = document_of(words)
    kinds: Dict[str, Type[AnyComparison]] = {"comparison": Comparison, "difference": Difference, "clusters": MachineComparison}
    return kinds[found["kind"]](words, found)


def _names(what: str, key: str) -> List[str]:
    return [row[key] for row in document_of(["show", what])["rows"]]


def clusters() -> List[str]:
    """Machines that are shipped."""
    return _names("clusters", "cluster")


def workloads() -> List[str]:
    """Models of the zoo and profiles that are shipped."""
    return _names("workloads", "workload")


def policies() -> List[str]:
    """Policies by name."""
    return _names("policies", "policy")


def version() -> str:
    """Version and commit of the tool within: "0.1.0 (commit ...)"."""
    return call(["version"]).removeprefix("dovetail ").strip()
