"""What is asked about: a job, a workload, a trace, and the machine.

SPDX-License-Identifier: Apache-2.0
"""

import glob
import json
import os
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from dovetail._tool import Document, InputError, Word, call, flags

PathLike = Union[str, "os.PathLike[str]"]


def _job_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return "/".join(str(item) for item in value)
    return str(value)


class Job:
    """A model, how it lies on its ranks, a batch and element types: what `--job` takes.

        Job("llama3_70b", tp=8, pp=4, dp=2, seq=8192, gbs=64, recompute="selective")
        Job.from_config("train.toml", world=64)

    Keywords are the keys of docs/jobs.md, such as tp, pp, dp, dp_shard, cp, ep (ranks), seq (tokens of a sample), mbs and gbs
    (samples of a micro-batch and of a step), dtype, recompute, zero. True and False are yes and no, a list is joined by `/`.
    A job without a layout is explored over all of them.
    """

    def __init__(self, model: str, **keys: Any) -> None:
        self.model = str(model)
        self.keys: Dict[str, Any] = dict(keys)

    @classmethod
    def from_config(cls, path: PathLike, **keys: Any) -> "Job":
        """A job that a file says: torchtitan's TOML, a model's config.json of Hugging Face, DeepSpeed's JSON, Megatron-LM's script.

        Keywords change what the file makes and go before it; world= is the number of ranks.
        """
        if not os.path.exists(path):
            raise InputError(f"{os.fspath(path)}: cannot be read: No such file or directory")
        return cls(os.fspath(path), **keys)

    @classmethod
    def from_torch(cls, model: Any, path: PathLike, **keys: Any) -> "Job":
        """A job of a model of Hugging Face's library, by its `config`, which is written to `path`: the job names that file.

        Weights are not looked at: the model may lie on the meta device. Of another module Workload.from_torch describes the step.
        """
        to_dict = getattr(getattr(model, "config", None), "to_dict", None)
        if to_dict is None:
            raise InputError(f"Job.from_torch: {type(model).__name__} has no config of Hugging Face; "
                             "Workload.from_torch describes any module")
        _saved("", json.dumps(to_dict(), indent=1, default=str), path)
        return cls(os.fspath(path), **keys)

    @property
    def text(self) -> str:
        """As --job takes it: "llama3_70b:tp=8,pp=4"."""
        options = ",".join(f"{key}={_job_value(value)}" for key, value in self.keys.items())
        return f"{self.model}:{options}" if options else self.model

    def but(self, **keys: Any) -> "Job":
        """The same job with other keys: job.but(tp=4)."""
        return Job(self.model, **{**self.keys, **keys})

    def _words(self) -> List[Word]:
        return ["--job", self.text]

    def __repr__(self) -> str:
        return f"Job({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def _saved(what: str, document: Optional[str], path: PathLike) -> str:
    if document is None:
        raise InputError(f"{what}: a name, not a document: there is nothing to save")
    with open(path, "w", encoding="utf-8") as file:
        file.write(document)
    return os.fspath(path)


@dataclass(frozen=True)
class Workload:
    """A step that is known op by op: a model of the zoo with options, a shipped profile, or a file.

        Workload("resnet50"), Workload("resnet50:batch=256,dtype=bf16"), Workload("step.json")

    `world` sets the ranks, `layout` how they are used ("dp_shard=8,dp=2"), `force` takes a capture that is not valid.
    """
    name: str
    world: Optional[int] = None
    layout: Optional[str] = None
    force: bool = False
    document: Optional[str] = field(default=None, repr=False)  # the text of a file that is named nowhere

    @classmethod
    def from_torch(cls, module: Any, example: Any, *, loss: Any = None, optimizer: str = "adam", name: Optional[str] = None,
                   **options: Any) -> "Workload":
        """A training step of any PyTorch module, without a GPU and without weights (dovetail.torch.describe).

        example: what its forward takes, of which shapes count; loss: of what it returns; options: world, layout.
        """
        import dovetail_torch  # needs torch

        describe: Any = dovetail_torch.describe
        program = describe(module, example, loss=loss, optimizer=optimizer, name=name)
        return cls(f"{program['name']}.json", document=json.dumps(program), **options)

    def _words(self) -> List[Word]:
        name: Word = self.name if self.document is None else Document(self.name, self.document)
        return ["--workload", name, *flags(world=self.world, layout=self.layout, force=self.force)]

    def save(self, path: PathLike) -> str:
        """Writes the workload's file, where it was made here; returns the path."""
        return _saved(f"workload {self.name}", self.document, path)


@dataclass(frozen=True)
class Machine:
    """A machine to predict on: a shipped name ("a100x8", "h100x64"), or a cluster file.

    `changes` says how it differs from that: "link=0.5x,latency=2x"; keys: link, network, nvlink, latency, compute,
    host, gpu, world (docs/machines.md, --what-if).
    """
    name: str
    changes: str = ""
    document: Optional[str] = field(default=None, repr=False)

    @classmethod
    def from_nccl_tests(cls, *logs: PathLike, name: Optional[str] = None, **options: Any) -> "Machine":
        """A machine of the logs that nccl-tests printed (text or JSON); options are those of `dovetail import nccl-tests`."""
        words = ["import", "nccl-tests", *[os.fspath(log) for log in logs], *flags(name=name, **options), "-o", "-"]
        text = call(words)
        return cls(f"{json.loads(text)['name']}.json", document=text)

    def what_if(self, **changes: Any) -> "Machine":
        """The same with other parts: machine.what_if(link="0.5x", latency="2x", gpu="h200", world=64); a number is a factor."""
        said = ",".join(f"{key}={value}" if isinstance(value, str) or key == "world" else f"{key}={value}x"
                        for key, value in changes.items())
        return replace(self, changes=",".join(part for part in (self.changes, said) if part))

    def save(self, path: PathLike) -> str:
        """Writes the cluster file, where it was made here; returns the path."""
        return _saved(f"machine {self.name}", self.document, path)

    def _named(self) -> Word:
        return self.name if self.document is None else Document(self.name, self.document)

    def _word(self) -> Word:
        """It alone, where a command takes no changes of it."""
        if self.changes:
            raise InputError(f"compare: {self.name} with {self.changes}: only what was measured is compared: leave out the changes")
        return self._named()


def machine_words(machine: Union["Machine", str, None]) -> List[Word]:
    """The words of a machine, of its name, or of none: then a workload brings its own."""
    return machines_words([machine])


def machines_words(machines: Sequence[Union["Machine", str, None]]) -> List[Word]:
    """The words of several: --what-if is of all of them, so they differ in their names only."""
    given = [Machine(one) if isinstance(one, str) else one for one in machines if one is not None]
    changes = sorted({one.changes for one in given})
    if len(changes) > 1:
        said = " and ".join(repr(one) if one else "none" for one in changes)
        raise InputError(f"machines with different what_if ({said}) need a call each")
    words: List[Word] = []
    for one in given:
        words += ["--cluster", one._named()]
    return [*words, *flags(what_if=changes[0])] if changes else words


class Trace:
    """Profiler traces of PyTorch, of one or of all ranks: files, patterns (rank*.json.gz) or a folder of them."""

    def __init__(self, *files: PathLike) -> None:
        found: List[str] = []
        for given in files:
            path = os.fspath(given)
            if os.path.isdir(path):
                here = sorted(glob.glob(os.path.join(path, "*.json")) + glob.glob(os.path.join(path, "*.json.gz")))
                if not here:
                    raise InputError(f"{path}: a folder without traces (*.json, *.json.gz)")
                found += here
            elif os.path.exists(path) or not glob.has_magic(path):
                found.append(path)
            else:
                here = sorted(glob.glob(path))
                if not here:
                    raise InputError(f"{path}: no file is called like that")
                found += here
        if not found:
            raise InputError("Trace: name at least one file")
        self.files: Tuple[str, ...] = tuple(found)

    def workload(self, name: str = "step.json", **options: Any) -> Workload:
        """The recorded step as a workload, to explore on other machines; options are those of `dovetail import kineto`."""
        text = call(["import", "kineto", *self.files, *flags(**options), "-o", "-"])
        return Workload(name, document=text)

    def __repr__(self) -> str:
        more = "" if len(self.files) == 1 else f" and {len(self.files) - 1} more"
        return f"Trace({self.files[0]!r}{more})"


Subject = Union[Job, Workload, Trace, str]


def subject_of(subject: Subject) -> Union[Job, Workload]:
    """A text is a workload, a trace the workload that it recorded."""
    if isinstance(subject, str):
        return Workload(subject)
    return subject.workload() if isinstance(subject, Trace) else subject
