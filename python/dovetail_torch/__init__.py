"""Between PyTorch and the dovetail tool: what a step needs, measured or described, and a plan applied to a model.

    profile = dovetail_torch.capture(model, forward, optimizer, path="job.json")   # on every rank
    $ dovetail plan --workload job.json --policy exact -o plan.json
    model = dovetail_torch.apply(model, "plan.json", optimizer=optimizer)          # on every rank

    dovetail_torch.capture_sharded(model, forward, make_optimizer, path="step.json", cluster="link.json")  # for FSDP2

    dovetail_torch.describe(model, example, file="job.json")   # in place of capture: a model that runs nowhere yet
    model = dovetail_torch.ReplannedModel(model, forward, optimizer, tool="dovetail")  # all of that, again and again

    $ python -m dovetail_torch measure -o mine.json            # what kernels take on this GPU: measure.py, gpu_books.py

`forward(model)` runs the forward pass of the wrapped model on this rank's batch and returns the loss.
Needs the standard library and torch (1.13 to 2.15) only; works with any backend of torch.distributed.

SPDX-License-Identifier: Apache-2.0
"""

from dovetail_torch.apply import apply, check
from dovetail_torch.capture import capture
from dovetail_torch.describe import describe
from dovetail_torch.hooks import PlannedModel
from dovetail_torch.plan import Plan, PlanError, PlanMismatch, read_plan
from dovetail_torch.record import record
from dovetail_torch.replan import ReplannedModel
from dovetail_torch.sharded import OverlappedCollectives, capture_sharded

__all__ = ["OverlappedCollectives", "Plan", "PlanError", "PlanMismatch", "PlannedModel", "ReplannedModel", "apply",
           "capture", "capture_sharded", "check", "describe", "read_plan", "record"]
