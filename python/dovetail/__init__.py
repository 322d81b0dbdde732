"""Predicts the step of a training job, finds its best schedule with a bound, and says why a recorded step is slow.

    import dovetail as dv

    job = dv.Job("llama3_8b", dp_shard=8, seq=8192, gbs=8)
    found = dv.explore(job, dv.Machine("h100x8"))
    found.best.change, found.best.step_us, found.best.mfu
    found.to_pandas()                              # a row each

    plan = dv.plan(dv.Workload("resnet50"), dv.Machine("a100x8"), policy="ddp")
    dv.export(plan, to="torch", path="ddp_plan.py")
    dv.diagnose(dv.Trace("rank*.json.gz")).headline

Everything happens in this process, by the code of the command `dovetail`: figures are the same to the last digit, and errors say
the same (InputError, a ValueError; InternalError where dovetail itself is wrong). Names with a unit carry it: `_us` microseconds, `_bytes` bytes, `_percent` per cent. Other
threads run meanwhile, so a ThreadPoolExecutor sweeps on all cores.

SPDX-License-Identifier: Apache-2.0
"""

from dovetail._tool import DeviceError, InputError, InternalError, call
from dovetail.commands import (clusters, compare, diagnose, explore, export, plan, policies, predict, version, workloads)
from dovetail.evaluator import Evaluation, Evaluator
from dovetail.inputs import Job, Machine, Trace, Workload
from dovetail.own_policy import Gradient, OwnPolicy, policy
from dovetail.results import (BandwidthRow, Comparison, Diagnosis, Difference, Exploration, Explorations, Export, Finding, Interval,
                              JobExploration, JobRow, MachineComparison, Pair, Plan, PolicyRow, Prediction, Predictions, Result, Stage)

__version__ = version()

__all__ = [
    "BandwidthRow", "Comparison", "DeviceError", "Diagnosis", "Difference", "Evaluation", "Evaluator", "Exploration",
    "Explorations", "Export", "Finding", "Gradient", "InputError", "InternalError", "Interval", "Job", "JobExploration", "JobRow", "Machine",
    "MachineComparison", "OwnPolicy", "Pair", "Plan", "PolicyRow", "Prediction", "Predictions", "Result", "Stage", "Trace",
    "Workload", "call", "clusters", "compare", "diagnose", "explore", "export", "plan", "policies", "policy", "predict",
    "version", "workloads"
]
