"""The tool for agents: an MCP server with explore, evaluate, plan, diagnose and export.

    python -m dovetail.mcp          speaks the Model Context Protocol on standard input and output

Needs the official SDK: pip install "dovetail[mcp]". docs/agents.md says how to use what it answers.

SPDX-License-Identifier: Apache-2.0
"""

import functools
import inspect
import json
import sys
from typing import Any, Callable, Dict, List, Optional, Type

import dovetail as dv
from dovetail.lib import _core

INSTRUCTIONS = """Predicts the step time of distributed training without a GPU, and bounds it from below.
Every figure is predicted (simulated) unless it comes from diagnose. Stop searching once gap_percent is below what you can measure.
workloads: a model of the zoo (resnet50:batch=256), a shipped profile or a file; jobs: model:key=value,... (llama3_8b:dp_shard=8,seq=8192).
cluster: a shipped machine (a100x8, h100x64) or a cluster file; what_if: how it differs (network=2x,nvlink=0.5x,link=0.5x,latency=2x,compute=1.3x,host=2x,gpu=h200,world=64)."""


def _subject(workload: Optional[str], job: Optional[str]) -> Any:
    if (workload is None) == (job is None):
        raise dv.InputError("name a workload or a job")
    return dv.Workload(workload) if workload is not None else _Job(job or "")


class _Job(dv.Job):
    """A job as one line says it."""

    @property
    def text(self) -> str:
        return self.model


def _machine(cluster: Optional[str], what_if: str) -> Optional[dv.Machine]:
    return None if cluster is None else dv.Machine(cluster, what_if)


def _without(document: Dict[str, Any], *keys: str) -> Dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}


def explore(workload: Optional[str] = None, job: Optional[str] = None, cluster: Optional[str] = None, what_if: str = "",
            policies: str = "", thresholds: str = "", framework: str = "", rows: int = 12) -> Dict[str, Any]:
    """All policies and bucket sizes of a workload, or all variants of a job, on a machine: the fastest rows, the best, the bound.

    policies: comma-separated names, for a workload; empty: what is comparable. rows: how many of the fastest to give.
    """
    found = dv.explore(_subject(workload, job), _machine(cluster, what_if), policies=policies or None, thresholds=thresholds or None,
                       framework=framework or None)
    document = _without(found.document, "tool", "schema")
    document["rows"] = sorted(document["rows"], key=lambda row: float(row["step_us"]))[:rows]
    if job is not None:
        document["best"] = None if found.document["best"] is None else found.document["rows"][found.document["best"]]
    return document


def evaluate(lines: List[Dict[str, Any]]) -> Dict[str, Any]:
    """In "answers" one for each line: {"workload", "cluster", "policy" or "groups"} or {"job", "cluster"}; errors are {"error"}.

    Further keys of a line: "world", "layout", "what_if", "force", "framework" (whose settings count), "notes", "whole" (play all
    micro-batches of a job), "want" (step, gradients, plan), "id". Answers have step_us, interval, lower_bound_us, gap_percent, exposed_us,
    memory, paste.
    """
    evaluator = dv.Evaluator.shared()
    return {"answers": [json.loads(evaluator.answer(json.dumps(line))) for line in lines]}


def plan(path: str, workload: Optional[str] = None, job: Optional[str] = None, cluster: Optional[str] = None, what_if: str = "",
         policy: str = "") -> Dict[str, Any]:
    """Writes a verified plan file (policy empty: the best that is known) and gives its prediction and buckets."""
    made = dv.plan(_subject(workload, job), _machine(cluster, what_if), policy or None)
    made.save(path)
    return {"path": path, "policy": made.policy, "step_us": made.step_us, "exposed_us": made.exposed_us,
            "lower_bound_us": made.lower_bound_us, "buckets": len(made.buckets), "origin": "simulated", "notes": made.notes}


def diagnose(files: List[str], framework: str = "torch") -> Dict[str, Any]:
    """Why a recorded step is slow, from traces of PyTorch's profiler (files, patterns or a folder); with what settings would give."""
    found = dv.diagnose(dv.Trace(*files), framework)
    return {"answer": found.answer, "headline": found.headline, "sentences": found.sentences, "findings": found.document["findings"],
            "settings": found.settings, "advice": (found.document["buckets"] or {}).get("advice", []),
            "not_known": found.not_known[:12]}


def export(to: str, path: str, plan_file: Optional[str] = None, job: Optional[str] = None, cluster: Optional[str] = None) -> Dict[str, Any]:
    """Writes a plan file or a job in the words of a framework (torch, megatron, torchtitan, ...), with what that gives up."""
    if (plan_file is None) == (job is None):
        raise dv.InputError("name a plan_file or a job")
    made = dv.export(_Job(job) if job is not None else str(plan_file), to, path, cluster)
    return {"path": path, "report": made.report}


TOOLS = (explore, evaluate, plan, diagnose, export)


def unknown_key(name: str, arguments: Dict[str, Any]) -> Optional[str]:
    """What is wrong with the first argument that the tool of this name does not have; None where all are known, or the tool is not."""
    known = next((list(inspect.signature(tool).parameters) for tool in TOOLS if tool.__name__ == name), None)
    key = None if known is None else next((key for key in arguments if key not in known), None)
    if known is None or key is None:
        return None
    near = _core.nearest_word(key, known)
    return f'{name}: unknown key "{key}"; ' + (f'did you mean "{near}"?' if near else f"known keys: {', '.join(known)}")


def server() -> Any:
    """The server with its tools. Raises ImportError where the SDK is not there."""
    try:
        from mcp.server.mcpserver import MCPServer as Server
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        from mcp.server.fastmcp import FastMCP as Server  # the SDK before 2.0
        from mcp.server.fastmcp.exceptions import ToolError

    class StrictServer(Server):  # the SDK drops keys that a tool does not have
        async def call_tool(self, name: str, arguments: Dict[str, Any], *more: Any) -> Any:
            unknown = unknown_key(name, arguments)
            if unknown:
                raise ToolError(unknown)
            return await super().call_tool(name, arguments, *more)

    made = StrictServer("dovetail", instructions=INSTRUCTIONS)
    for tool in TOOLS:
        made.tool()(_saying_why(tool, ToolError))
    return made


def _saying_why(tool: Callable[..., Dict[str, Any]], refusal: Type[Exception]) -> Callable[..., Dict[str, Any]]:
    """The tool, whose mistakes reach the agent as sentences."""
    @functools.wraps(tool)
    def answer(*values: Any, **named: Any) -> Dict[str, Any]:
        try:
            return tool(*values, **named)
        except (dv.InputError, dv.DeviceError, OSError) as error:
            raise refusal(str(error)) from error
        except (dv.InternalError, MemoryError) as error:
            raise refusal(f"{error} (the call: {tool.__name__}({values}, {named}))") from error

    return answer


def main() -> int:
    try:
        made = server()
    except ImportError as error:
        print(f'dovetail.mcp: needs the MCP SDK: pip install "dovetail[mcp]" ({error})', file=sys.stderr)
        return 2
    made.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
