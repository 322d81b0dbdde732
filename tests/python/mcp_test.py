"""The MCP server asked by the SDK's own client, over a pipe as an agent does it.

SPDX-License-Identifier: Apache-2.0
"""

import asyncio
import json
import os
import sys
import tempfile
import unittest

import dovetail as dv

try:
    import mcp
    from mcp import StdioServerParameters
except ImportError as error:
    mcp = None
    MISSING = f"no MCP SDK here: {error}"


def asked(*calls):
    """The results of (tool, arguments) calls, in one session; and the names of the tools."""
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "dovetail.mcp"])

    async def with_client():
        async with mcp.Client(parameters) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    async def with_session():  # the SDK before 2.0
        from mcp.client.stdio import stdio_client
        async with stdio_client(parameters) as (read, write), mcp.ClientSession(read, write) as session:
            await session.initialize()
            tools = [tool.name for tool in (await session.list_tools()).tools]
            return tools, [await session.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(with_client() if hasattr(mcp, "Client") else with_session())


def document(result):
    return json.loads(result.content[0].text)


def failed(result):
    return bool(getattr(result, "is_error", None) or getattr(result, "isError", None))


@unittest.skipIf(mcp is None, "" if mcp is not None else MISSING)
class Server(unittest.TestCase):
    def test_tools_answer_as_the_module_does(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            tools, results = asked(
                ("explore", {"workload": "resnet50", "cluster": "a100x8", "policies": "ddp,exact"}),
                ("evaluate", {"lines": [{"workload": "resnet50", "cluster": "a100x8", "policy": "ddp"}, {"workload": "x"}]}),
                ("plan", {"path": path, "workload": "resnet50", "cluster": "a100x8", "policy": "ddp"}),
                ("export", {"to": "torch", "path": os.path.join(folder, "ddp_plan.py"), "plan_file": path}),
                ("explore", {"job": "llama3_8b:dp_shard=8,seq=8192,gbs=8", "cluster": "h100x8", "rows": 3}),
                ("plan", {"path": path, "workload": "resnet50", "cluster": "a100x8", "policy": "dpp"}))
            self.assertEqual(sorted(tools), ["diagnose", "evaluate", "explore", "export", "plan"])
            explored, evaluated, planned, exported, job, wrong = results
            step, refused = document(evaluated)["answers"]
            self.assertEqual(step["step_us"], dv.Evaluator()(workload="resnet50", cluster="a100x8", policy="ddp").step_us)
            self.assertIn("unknown", refused["error"])
            found = dv.explore("resnet50", "a100x8", policies="ddp,exact")
            self.assertEqual(document(explored)["best"], found.document["best"])
            self.assertEqual(document(planned)["step_us"], dv.Plan.load(path).step_us)
            self.assertIn("use: from ddp_plan import wrap", document(exported)["report"])
            self.assertEqual(len(document(job)["rows"]), 3)
            self.assertTrue(failed(wrong))
            self.assertIn("dpp", wrong.content[0].text)
            self.assertFalse(any(failed(one) for one in results[:-1]))

    def test_a_key_that_a_tool_does_not_have_is_refused_with_the_nearest(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            calls = {
                'explore: unknown key "machine"; did you mean "cluster"?': ("explore", {"workload": "resnet50", "machine": "a100x8"}),
                'plan: unknown key "polcy"; did you mean "policy"?': ("plan", {"path": path, "workload": "mlp", "polcy": "ddp"}),
                'diagnose: unknown key "for"; did you mean "framework"?': ("diagnose", {"files": [], "for": "torch"}),
                'evaluate: unknown key "zzz"; known keys: lines': ("evaluate", {"lines": [], "zzz": 1})}
            results = asked(*calls.values())[1]
            for sentence, result in zip(calls, results):
                self.assertTrue(failed(result), sentence)
                self.assertEqual(result.content[0].text, sentence)
            self.assertFalse(os.path.exists(path))

    def test_what_a_job_does_not_take_is_refused(self):
        refused = asked(("explore", {"job": "llama3_8b:dp_shard=8,gbs=8", "cluster": "h100x8", "framework": "fsdp"}))[1][0]
        self.assertTrue(failed(refused))
        self.assertIn("--framework", refused.content[0].text)


if __name__ == "__main__":
    unittest.main()
