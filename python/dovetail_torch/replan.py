"""Plans a model's buckets anew while it trains, and keeps a plan only if the measured step became shorter.

    model = dovetail_torch.ReplannedModel(model, forward, optimizer, tool="dovetail/build/dovetail")  # in place of DDP
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_function(model(inputs), targets).backward()
        optimizer.step()
        model.step_ended()                                                                            # on every rank

Steps are timed as they are trained, from one step_ended() to the next, in windows of `steps` of them:

  measure  with the buckets of the moment, at first DDP's own. Then capture() times the step and the links as they are
           now, rank 0 runs `dovetail plan`, and the plan is applied to the model
  trial    with the planned buckets. They are kept if the median step is shorter by more than the notches of both windows;
           else those of before, which were only put aside, are taken again
  watch    until a window's median is off the one that was kept by more than `drift` and by more than the notches, longer
           or shorter. Then the next window measures again, and if that is off, too, it is planned for

A notch is 1.57 (p75 - p25) / sqrt(steps): two medians further apart than both notches differ with about 95 % certainty
(McGill, Tukey, Larsen: Variations of box plots, 1978). Each decision that kept nothing is followed by a pause in which
nothing is judged: 1 window, then 2, 4, at most 64; a plan that is kept ends that.

All ranks know the windows of all ranks and judge the slowest one's, so they decide alike. Training does not notice: sums
are those of DDP with these buckets, and capture() puts back what it changes. A capture that is not valid is planned
with all the same, since the trial decides. FOLDER/log.json has every decision with what was measured and predicted.

SPDX-License-Identifier: Apache-2.0
"""

import gc
import json
import os
import statistics
import subprocess
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dovetail_torch.apply import apply, check, needs_hooks, say_on_rank_0
from dovetail_torch.capture import _DeviceClock, _HostClock, _write, capture
from dovetail_torch.plan import PlanError, PlanMismatch, read_plan

SETTLING = 3  # steps before each window: DDP arranges its buckets after the first one
LONGEST_PAUSE = 64  # windows


class _Window:
    """Times of some steps in us, of the rank whose median is the longest."""

    def __init__(self, ranks):
        self.p25, self.median, self.p75 = statistics.quantiles(max(ranks, key=statistics.median), n=4)
        self.notch = 1.57 * (self.p75 - self.p25) / len(ranks[0]) ** 0.5

    def is_shorter_than(self, other):
        return other.median - self.median > self.notch + other.notch

    def as_json(self):
        return {f"{key}_us": round(getattr(self, key), 1) for key in ("median", "p25", "p75", "notch")}


def _run(words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


class ReplannedModel(torch.nn.Module):
    """Use it as one uses DistributedDataParallel, and call step_ended() after each step of the optimizer.

    forward(model) -> loss  as in capture(): of one batch, always the same; the next one of a loader would be lost
    tool                    the dovetail program, which rank 0 starts by run(words), by default subprocess.run
    folder                  where log.json, and of the n-th decision capture-n.json and plan-n.json go
    policy                  of `dovetail plan`; DDP must be able to run its plans
    steps, drift            of a window; the share by which its median must be off before it is planned again
    capturing               {option of capture(): value}
    options                 further options of DistributedDataParallel, on the default process group

    decisions has what the log has of them. Raises PlanError where the tool does not start, or DDP cannot run what the
    policy plans.
    """

    def __init__(self, model, forward, optimizer, *, tool="dovetail", run=_run, folder="replan",
                 policy="exact:mode=copy,wait=end-of-backward", steps=20, drift=0.05, capturing=None, say=say_on_rank_0,
                 **options):
        super().__init__()
        if steps < 4:
            raise ValueError(f"steps={steps}: expected 4 at least, of which quartiles are taken")
        if "process_group" in options:
            raise ValueError("process_group: steps are planned again for the default group only")
        self.module = model
        self.decisions = []
        self._batch_forward, self._optimizer, self._options = forward, optimizer, options
        self._capturing = capturing or {}
        self._tool, self._run, self._folder, self._policy, self._say = tool, run, folder, policy, say
        self._steps, self._drift = steps, drift
        self._clock = _DeviceClock() if next(model.parameters()).device.type == "cuda" else _HostClock()
        self._marks = []         # ends of steps
        self._ended = 0          # steps
        self._judge = self._measured
        self._reference = None   # the window against which drifts are seen
        self._found = {}         # what the next decision's entry has so far
        self._pause, self._next_pause = 0, 1
        version, error = self._of_rank_0(lambda: self._run_tool("--version"))
        if error:
            raise PlanError(f"tool={tool!r} does not run: {error}")
        self._head = {"schema": "dovetail.replan/1", "kind": "replan", "tool": {"version": version.strip()},
                      "torch": str(torch.__version__), "world_size": dist.get_world_size(), "policy": policy,
                      "steps": steps, "drift_share": drift}
        # In dictionaries, since a module among the attributes would be a submodule.
        self._now = {"ddp": DistributedDataParallel(model, **options), "plan": None}
        self._before = None

    # ---- as DistributedDataParallel

    def forward(self, *inputs, **options):
        return self._now["ddp"](*inputs, **options)

    def no_sync(self):
        return self._now["ddp"].no_sync()

    # ---- windows

    def step_ended(self):
        """After each step of the optimizer, on every rank. Collective once per window."""
        self._ended += 1
        self._marks.append(self._clock.now())
        if len(self._marks) <= SETTLING + self._steps:
            return
        self._clock.settle()
        marks, self._marks = self._marks[SETTLING:], []
        self._judge(_Window(self._of_all([self._clock.microseconds(*pair) for pair in zip(marks, marks[1:])])))

    def _of_all(self, value):
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, value)
        return everyone

    def _of_rank_0(self, call):
        return self._of_all(call() if dist.get_rank() == 0 else None)[0]

    def _has_drifted(self, window):
        return (abs(window.median / self._reference.median - 1) > self._drift and
                (window.is_shorter_than(self._reference) or self._reference.is_shorter_than(window)))

    def _watched(self, window):
        self._pause -= 1
        if self._pause < 0 and self._has_drifted(window):
            self._found = {"drifted": window.as_json()}
            self._judge = self._measured

    def _measured(self, window):
        """Captures, plans, and puts the plan to the trial."""
        self._found.update(at_step=self._ended, before=window.as_json())
        if self._reference and not self._has_drifted(window):
            return self._decide("passed", self._reference, "the step is as it was")
        self._reference, began = window, time.perf_counter()
        plan, error = self._plan(len(self.decisions) + 1)
        self._found["planning_s"] = round(time.perf_counter() - began, 1)
        if error:
            return self._decide("not planned", window, error)
        self._found.update(buckets=[bucket.bytes for bucket in plan.buckets], predicted_us=plan.predicted_us)
        if self._now["plan"] and self._now["plan"].buckets == plan.buckets:
            return self._decide("unchanged", window, "the plan has the buckets of the moment")
        self._before, self._now = self._now, {"ddp": self._apply(plan), "plan": plan}
        self._judge = self._tried

    def _tried(self, window):
        self._found["after"] = window.as_json()
        before = self._reference
        moved, notches = (us / before.median for us in (window.median - before.median, before.notch + window.notch))
        reason = (f"median step from {before.median / 1e3:.3f} to {window.median / 1e3:.3f} ms ({moved:+.1%}), "
                  f"notches of both {notches:.1%}")
        decision, reference = ("kept", window) if window.is_shorter_than(before) else ("dropped", before)
        try:
            check(self._now["ddp"])
        except PlanMismatch as error:
            decision, reference, reason = "dropped", before, str(error)
        if decision == "dropped":
            self._now = self._before
        self._before = None
        gc.collect()  # takes the hooks of the DDP that is left off the parameters
        self._decide(decision, reference, reason)

    def _decide(self, decision, reference, reason):
        self.decisions.append({**self._found, "decision": decision, "reason": reason})
        self._say(f"replan at step {self._ended}: {decision}: {reason}")
        if dist.get_rank() == 0:
            _write(os.path.join(self._folder, "log.json"), {**self._head, "decisions": self.decisions})
        self._pause, self._next_pause = (0, 1) if decision == "kept" else (
            self._next_pause, min(2 * self._next_pause, LONGEST_PAUSE))
        self._reference, self._found, self._judge = reference, {}, self._watched

    # ---- plans

    def _run_tool(self, *words):
        """(what the tool printed, "") or ("", why it failed)"""
        try:
            os.makedirs(self._folder, exist_ok=True)
            ended = self._run([str(self._tool), *words])
        except OSError as error:
            return "", str(error)
        if ended.returncode != 0:
            return "", ended.stderr.strip() or f"exit code {ended.returncode}"
        return ended.stdout, ""

    def _plan(self, number):
        """(the plan for the step and the links as they are, "") or (None, why there is none)"""
        workload, file = (os.path.join(self._folder, f"{what}-{number}.json") for what in ("capture", "plan"))
        conditions = capture(self.module, self._batch_forward, self._optimizer, path=workload,
                             **self._capturing)["conditions"]
        self._found["capture_not_valid"] = conditions["why_not_valid"]
        def text_of_plan():
            _, error = self._run_tool("plan", "--workload", workload, "--policy", self._policy, "-o", file, "--force")
            if error:
                return None, error
            with open(file, encoding="utf-8") as plan:
                return json.load(plan), ""
        plan, error = self._of_rank_0(text_of_plan)
        if error:
            return None, error
        plan = read_plan(plan)
        if needs_hooks(plan):
            raise PlanError(f"policy={self._policy!r}: expected plans that DDP can run: {', '.join(needs_hooks(plan))}")
        return plan, ""

    def _apply(self, plan):
        """DDP sends rank 0's buffers to all ranks when it is built; each rank gets its own ones back."""
        kept = [(buffer, buffer.detach().clone()) for buffer in self.module.buffers()]
        ddp = apply(self.module, plan, optimizer=self._optimizer, check_steps=False, say=self._say, **self._options)
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
        return ddp
