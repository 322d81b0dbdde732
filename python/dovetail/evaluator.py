"""One schedule or job after another, thousands a second: what `dovetail evaluate` answers to lines, in this process.

SPDX-License-Identifier: Apache-2.0
"""

import hashlib
import json
import os
import tempfile
import threading
from typing import Any, Dict, Optional, Tuple

from dataclasses import dataclass, field

from dovetail._tool import Document, InputError, InternalError
from dovetail.lib import _core
from dovetail.results import Interval, interval_of


@dataclass(frozen=True)
class Evaluation:
    """What is predicted of a policy or a job. Times are microseconds of a step in steady state."""
    step_us: float
    interval: Optional[Interval]  # where public steps like it lay; None where nothing is known
    lower_bound_us: Optional[float]  # no schedule of the kind is faster on this model; None where none is known
    gap_percent: Optional[float]  # of the step above the bound
    left_us: float  # what could be gained at most: down to the bound, else all that is exposed
    exposed_us: float  # communication that nothing hides
    bubble_us: Optional[float]  # of a job as it is: what its busiest stage waits
    held_bytes: int  # memory of a rank: of a job its peak, of a workload what it keeps all step long, activations aside
    device_bytes: Optional[int]
    fits: bool  # held_bytes, into the device
    room: str  # "yes", "may" or "no": whether all that the memory may be fits
    paste: Optional[str]  # the setting of the framework, or the command that makes the file of a job as it is
    in_words: Optional[str]
    document: Dict[str, Any] = field(repr=False)  # the whole answer
    host_bound: Tuple[str, ...] = ()  # phases in which issuing ops takes the host over 0.85 of the time
    now_us: Optional[float] = None  # what the buckets of a recorded step take here; None where nothing was recorded


class Evaluator:
    """Answers one question after another and keeps workloads, machines and what was simulated on them between them.

        evaluator = dv.Evaluator()
        for cap in (1, 5, 25, 100):
            evaluator(workload="resnet50", cluster="a100x8", policy=f"ddp:cap={cap}MiB").step_us
        evaluator(job="llama3_8b:dp_shard=8,seq=8192,gbs=8", cluster="h100x8").fits

    Keywords are the keys of a line (docs/agents.md). Threads may share it; those that ask about one workload on one machine take
    turns, so that a sweep over policies runs in parallel with an Evaluator for each thread.
    """

    _shared: Optional["Evaluator"] = None
    _making = threading.Lock()

    def __init__(self) -> None:
        self._core = _core.Evaluator()
        self._folder: Optional[tempfile.TemporaryDirectory[str]] = None
        self._files = threading.Lock()

    @classmethod
    def shared(cls) -> "Evaluator":
        """One for all of this process."""
        with cls._making:
            if cls._shared is None:
                cls._shared = cls()
            return cls._shared

    def __call__(self, **keys: Any) -> Evaluation:
        """The answer as a value. Raises as `ask` does."""
        found = self.ask(keys)
        memory = found["memory"]
        return Evaluation(step_us=found["step_us"], interval=interval_of(found["interval"]),
                          lower_bound_us=found["lower_bound_us"], gap_percent=found["gap_percent"], left_us=found["left_us"],
                          exposed_us=found["exposed_us"], bubble_us=found.get("bubble_us"), held_bytes=memory["held_bytes"],
                          device_bytes=memory["device_bytes"], fits=memory["fits"], room=memory["room"], paste=found["paste"],
                          in_words=found["in_words"], document=found,
                          host_bound=tuple(one["phase"] for one in found["host_bound"]), now_us=found["now_us"])

    def answer(self, line: str) -> str:
        """A line of JSON to a line of JSON; an error is {"error": SENTENCE}, with "internal" where it is dovetail's own."""
        return self._core.answer(line)

    def ask(self, line: Dict[str, Any], documents: Optional[Dict[str, Document]] = None) -> Dict[str, Any]:
        """The answer to a line as a document. Raises InputError where it is an error, InternalError where that is dovetail's own."""
        given = dict(line)
        for key, document in (documents or {}).items():
            given[key] = self._file(document)
        found: Dict[str, Any] = json.loads(self._core.answer(json.dumps(given)))
        if "error" in found:
            error = str(found["error"])
            for key, document in (documents or {}).items():
                error = error.replace(given[key], document.name)
            raise InternalError(f"{error}: {found['line']}") if found.get("internal") else InputError(error)
        return found

    def _file(self, document: Document) -> str:
        """Where the document lies for as long as this lives: equal ones are one file, which the tool keeps loaded."""
        with self._files:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="dovetail-")
            own = os.path.join(self._folder.name, hashlib.sha256(document.text.encode()).hexdigest()[:16])
            path = os.path.join(own, document.name)
            if not os.path.exists(path):
                os.makedirs(own, exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(document.text)
            return path
