"""The installed module against the installed command: the same figures, the same sentences, values that hold what documents say.

Run by scripts/checks/check_python.py, outside the source tree; DOVETAIL_SOURCE is that tree.

SPDX-License-Identifier: Apache-2.0
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import dovetail as dv
from dovetail import mcp, results

SOURCE = pathlib.Path(os.environ["DOVETAIL_SOURCE"])
TRACES = SOURCE / "tests" / "recordings" / "kineto" / "traces"
TOOL = [sys.executable, "-m", "dovetail"]


def told(*words, **options):
    return subprocess.run([*TOOL, *words], capture_output=True, text=True, check=False, **options)


def command(*words):
    ended = told(*words)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


class Commands(unittest.TestCase):
    """Each function gives what the command prints."""

    def test_explore_of_a_workload_is_that_of_the_command(self):
        found = dv.explore(dv.Workload("resnet50"), dv.Machine("a100x8"), policies=["ddp", "exact"], thresholds="1MiB:64MiB")
        printed = command("explore", "--workload", "resnet50", "--cluster", "a100x8", "--policies", "ddp,exact", "--thresholds",
                          "1MiB:64MiB", "--json")
        self.assertEqual(found.document, printed)
        self.assertEqual(found.best.step_us, printed["best"]["step_us"])
        self.assertEqual([row.step_us for row in found.rows], [row["step_us"] for row in printed["rows"]])
        self.assertLessEqual(found.lower_bound_us, min(row.step_us for row in found.rows))
        self.assertIn("resnet50 on a100x8", repr(found))

    def test_a_row_is_named_as_it_is_pasted(self):
        found = dv.explore("resnet50", "a100x8", policies=["exact", "ddp", dv.policy(lambda given: [given], name="whole")])
        names = [(row.policy, row.as_run) for row in found.rows]
        self.assertEqual(len(set(names)), len(names))
        self.assertLess(len({row.rule for row in found.rows}), len(names))  # DDP by itself, as a view and with first buckets
        self.assertEqual([row.policy for row in found.rows if row.rule is None], ["whole"])
        for row in found.rows:
            if row.rule is not None:
                self.assertEqual(row.policy.split(":")[0], row.rule)
                self.assertEqual(dv.plan("resnet50", "a100x8", row.policy).policy, row.policy)

    def test_explore_of_a_job_is_that_of_the_command(self):
        job = dv.Job("llama3_8b", dp_shard=8, seq=8192, gbs=8)
        found = dv.explore(job, "h100x8")
        printed = command("explore", "--job", "llama3_8b:dp_shard=8,seq=8192,gbs=8", "--cluster", "h100x8", "--json")
        self.assertEqual(found.document, printed)
        self.assertEqual(found.asked.change, "as asked")
        self.assertTrue(found.best.fits)
        self.assertLessEqual(found.best.step_us, found.asked.step_us)
        self.assertLess(found.best.interval.p5_us, found.best.interval.p95_us)
        self.assertEqual(found.best.stages[0].memory_bytes, found.best.peak_bytes)

    def test_explore_of_several_pairs(self):
        found = dv.explore(["resnet50", "gpt2"], ["a100x8", "h200x8"], policies="ddp")
        self.assertEqual([(row.workload, row.cluster) for row in found.rows],
                         [("resnet50", "a100x8"), ("resnet50", "h200x8"), ("gpt2", "a100x8"), ("gpt2", "h200x8")])
        self.assertEqual([one.best.step_us for one in found], [row.step_us for row in found.rows])

    def test_machines_of_one_call_differ_in_their_names_only(self):
        slow = dv.Machine("a100x8").what_if(link=0.5)
        for ask in (lambda: dv.explore(["resnet50"], ["a100x8", slow], policies="ddp"),
                    lambda: dv.predict(dv.plan("resnet50", "a100x8", "ddp"), [slow, "h200x8"])):
            with self.assertRaisesRegex(dv.InputError, "need a call each"):
                ask()
        both = dv.explore(["resnet50"], [slow, dv.Machine("h200x8").what_if(link=0.5)], policies="ddp")
        self.assertEqual(both.rows[0].step_us, dv.explore("resnet50", slow, policies="ddp").best.step_us)

    def test_what_is_no_policy_is_told(self):
        with self.assertRaisesRegex(dv.InputError, "@dovetail.policy"):
            dv.explore("resnet50", "a100x8", policies=[lambda gradients: [gradients]])
        with self.assertRaisesRegex(dv.InputError, "returned None"):
            dv.plan("resnet50", "a100x8", dv.policy(lambda gradients: None))
        with self.assertRaisesRegex(dv.InputError, "the name 'a/b' has a /"):
            dv.policy(lambda gradients: [gradients], name="a/b")

    def test_a_plan_travels_without_a_file(self):
        plan = dv.plan("resnet50", "a100x8", "ddp:cap=25MiB")
        self.assertEqual(plan.document, command("plan", "--workload", "resnet50", "--cluster", "a100x8", "--policy",
                                                "ddp:cap=25MiB", "--json"))
        row = dv.predict(plan)[0]
        self.assertEqual((row.plan, row.step_us), ("plan.json", plan.step_us))
        elsewhere = dv.predict(plan, dv.Machine("a100x8").what_if(link=0.5))[0]
        self.assertGreater(elsewhere.exposed_us, row.exposed_us)
        with tempfile.TemporaryDirectory() as folder:
            again = dv.Plan.load(plan.save(os.path.join(folder, "saved.json")))
            self.assertEqual(again.document, plan.document)
            written = dv.export(plan, "torch", os.path.join(folder, "ddp_plan.py"))
            self.assertIn("from ddp_plan import wrap", written.report)
            self.assertEqual(written.text, told("export", os.path.join(folder, "saved.json"), "--to", "torch").stdout.replace(
                os.path.join(folder, "saved.json"), "plan.json"))

    def test_a_job_goes_to_its_framework_and_comes_back(self):
        job = dv.Job("llama3_8b", dp_shard=8, seq=8192, gbs=8)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "train.toml")
            dv.export(job, "torchtitan", path)
            back = dv.Job.from_config(path, world=8)
            ask = dv.Evaluator()
            self.assertEqual(ask(job=back.text, cluster="h100x8").held_bytes > 0, True)

    def test_a_model_of_hugging_face_is_a_job_by_its_config(self):
        source = SOURCE / "tests" / "models" / "networks" / "data" / "tiny_llama" / "config.json"

        class Config:
            def to_dict(self):
                return json.loads(source.read_text(encoding="utf-8"))

        class Model:
            config = Config()

        with tempfile.TemporaryDirectory() as folder:
            job = dv.Job.from_torch(Model(), os.path.join(folder, "model.json"), dp=2, gbs=2)
            steps = [dv.explore(each, "h100x2").best.step_us
                     for each in (job, dv.Job(source, dp=2, gbs=2))]
        self.assertEqual(*steps)
        with self.assertRaisesRegex(dv.InputError, "object has no config of Hugging Face; Workload.from_torch"):
            dv.Job.from_torch(object(), "never.json")

    def test_a_machine_of_nccl_tests_is_the_file_that_the_command_writes(self):
        log = SOURCE / "tests" / "fuzz" / "corpus" / "nccl-tests" / "two_runs.log"
        machine = dv.Machine.from_nccl_tests(log)
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "machine.json")
            self.assertEqual(told("import", "nccl-tests", log, "-o", file).returncode, 0)
            self.assertEqual(pathlib.Path(machine.save(os.path.join(folder, "saved.json"))).read_text(encoding="utf-8"),
                             pathlib.Path(file).read_text(encoding="utf-8"))

    def test_the_public_measurements_of_yardsticks_are_installed(self):
        found = command("validate", "public", "--json")
        self.assertEqual(found["rows"][0]["yardstick"], "nanotron")
        self.assertGreater(found["rows"][0]["rows"], 1000)

    def test_diagnose_is_that_of_the_command(self):
        trace = dv.Trace(TRACES / "ddp-resnet50-a100x2-rank0.json.gz")
        found = dv.diagnose(trace)
        printed = command("diagnose", *trace.files, "--json")
        self.assertEqual(found.document, printed)
        self.assertEqual(found.headline, printed["headline"])
        self.assertEqual(found.findings[0].kind, "host-bound")
        self.assertEqual(found.answer["set"], [])
        self.assertEqual(found.collectives[0]["collective"], "all-reduce")
        alone = dv.diagnose(TRACES / "h100" / "eager.json.gz", unprofiled_step="12.21ms")
        self.assertEqual(alone.document["unprofiled_step_us"], 12210)
        self.assertIn("4.11 ms", alone.answer["left"])
        self.assertEqual(len(dv.Trace(TRACES / "dlrm-v100x8").files), 8)
        self.assertEqual(dv.Trace(str(TRACES / "dlrm-v100x8" / "rank*.json.gz")).files,
                         dv.Trace(TRACES / "dlrm-v100x8").files)

    def test_a_trace_is_explored_as_a_workload(self):
        found = dv.explore(dv.Trace(TRACES / "ddp-resnet50-a100x2-rank0.json.gz"), policies=["ddp", "exact"])
        self.assertEqual(found.workload, "step.json")
        self.assertEqual(found.world_size, 2)

    def test_a_recorded_step_is_one_thing_whoever_asks(self):
        trace = dv.Trace(TRACES / "dlrm-v100x8")
        said = dv.diagnose(trace).document["buckets"]
        found = dv.explore(trace)
        self.assertEqual(found.now_us, said["now_us"])
        self.assertEqual(found.document["now"]["gain"], said["gain"])
        self.assertEqual(found.document["now"]["recorded_step_us"], said["recorded_step_us"])
        self.assertAlmostEqual(found.gain_us, said["gain"]["gain_us"], places=3)
        with tempfile.TemporaryDirectory() as folder:
            step = os.path.join(folder, "step.json")
            self.assertEqual(told("import", "kineto", *trace.files, "-o", step).returncode, 0)
            best = dv.Evaluator()(workload=step, policy=found.best.policy)
        self.assertEqual(best.now_us, found.now_us)
        self.assertEqual(best.step_us, found.best.step_us)

    def test_compare_of_two_predictions(self):
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for policy in ("ddp", "no-overlap"):
                files.append(os.path.join(folder, policy + ".json"))
                dv.predict(dv.plan("resnet50", "a100x8", policy), trace=files[-1])
            moved = dv.compare(*files)
            self.assertIsInstance(moved, dv.Difference)
            self.assertGreater(len(moved.rows), 0)
            plans = [dv.plan("resnet50", "a100x8", policy) for policy in ("ddp", "no-overlap")]
            self.assertEqual(dv.compare(*plans).rows, moved.rows)
            self.assertEqual(dv.compare(plans[0], files[1]).rows, moved.rows)
            self.assertIn("no-overlap second", dv.compare(*plans).report())
            self.assertIn("<pre>", moved._repr_html_())

    def test_compare_of_a_plan_with_its_run(self):
        plan = dv.plan("mlp", "a100x2_nv12", "ddp")
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "run.json")
            ended = told("run", plan.save(os.path.join(folder, "plan.json")), "--ranks", "2", "--rounds", "1", "--steps", "2", "--trace", run)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            found = dv.compare(plan, run)
            self.assertIsInstance(found, dv.Comparison)
            self.assertEqual(found.step_time["predicted_us"], plan.step_us)
            self.assertEqual(len(found.to_pandas()), len(plan.buckets))

    def test_compare_of_two_machines(self):
        found = dv.compare(dv.Machine("a100x16_ib"), dv.Machine("h100x16_tcpxo"))
        self.assertIsInstance(found, dv.MachineComparison)
        self.assertEqual(found.document, command("compare", "a100x16_ib", "h100x16_tcpxo", "--json"))
        for row in found.rows:
            self.assertAlmostEqual(row.ratio, row.second_busbw_gb_per_s / row.first_busbw_gb_per_s)
        self.assertEqual({(row.collective, row.ranks) for row in found.rows}, {("all-reduce", 16)})
        log = SOURCE / "tests" / "fuzz" / "corpus" / "nccl-tests" / "two_runs.log"
        own = dv.Machine.from_nccl_tests(log)
        self.assertEqual({row.ratio for row in dv.compare(own, own).rows}, {1})
        self.assertIn("ratio", dv.compare(own, own).report())
        with self.assertRaisesRegex(dv.InputError, "a100x8 with link=0.5x: only what was measured is compared"):
            dv.compare(dv.Machine("a100x8").what_if(link=0.5), "h200x8")
        with self.assertRaisesRegex(dv.InputError, "a100x8 is a cluster, and so has to be plan.json"):
            dv.compare(dv.Machine("a100x8"), dv.plan("resnet50", "a100x8"))

    def test_plans_of_one_name_are_told_apart(self):
        plans = [dv.plan("resnet50", "a100x8", policy) for policy in ("ddp", "ddp:cap=100MiB", "ddp", "ddp:cap=100MiB")]
        found = dv.predict(plans)
        rows = found.rows
        self.assertIn("4 predictions", found._repr_html_())
        self.assertEqual([row.step_us for row in rows], [plan.step_us for plan in plans])
        self.assertNotEqual(rows[0].step_us, rows[1].step_us)
        self.assertEqual([row.plan for row in rows], ["plan.json", "plan-2.json"] * 2)
        row = next(row for row in dv.explore("resnet50", "a100x8", policies=plans[:2]).rows if row.policy == "plan-2.json")
        self.assertEqual(row.step_us, plans[1].step_us)

    def test_lists(self):
        self.assertIn("a100x8", dv.clusters())
        self.assertIn("resnet50", dv.workloads())
        self.assertIn("exact", dv.policies())


class Errors(unittest.TestCase):
    """What the command says with exit code 2 is an InputError with the same sentence."""

    def test_sentences_are_those_of_the_command(self):
        for call, words in [
            (lambda: dv.explore("resnet51", "a100x8"), ["explore", "--workload", "resnet51", "--cluster", "a100x8"]),
            (lambda: dv.explore("resnet50", "a100x9x"), ["explore", "--workload", "resnet50", "--cluster", "a100x9x"]),
            (lambda: dv.plan("resnet50", "a100x8", "dpp"), ["plan", "--workload", "resnet50", "--cluster", "a100x8", "--policy",
                                                            "dpp", "--json"]),
            (lambda: dv.explore(dv.Job("llama3_8b", tq=8), "h100x8"), ["explore", "--job", "llama3_8b:tq=8", "--cluster", "h100x8"]),
            (lambda: dv.explore("resnet50", "a100x8", thresholds="25mb"),
             ["explore", "--workload", "resnet50", "--cluster", "a100x8", "--thresholds", "25mb"]),
            (lambda: dv.explore("resnet50", machine="a100x8"), ["explore", "--workload", "resnet50", "--machine", "a100x8"]),
            (lambda: dv.explore("resnet50", "a100x8", tresholds="1MiB"),
             ["explore", "--workload", "resnet50", "--cluster", "a100x8", "--tresholds", "1MiB"]),
        ]:
            with self.subTest(words):
                with self.assertRaises(dv.InputError) as raised:
                    call()
                ended = told(*words)
                self.assertEqual(ended.returncode, 2)
                self.assertEqual(ended.stderr, f"dovetail: {raised.exception}\n")

    def test_is_a_value_error(self):
        self.assertTrue(issubclass(dv.InputError, ValueError))

    def test_a_fault_of_dovetail_is_no_input_error(self):
        class Core:
            def answer(self, line):
                return json.dumps({"error": "order.cc:1: check failed; a fault of dovetail", "internal": True, "line": line})

        evaluator = dv.Evaluator()
        evaluator._core = Core()
        with self.assertRaisesRegex(dv.InternalError, 'a fault of dovetail: {"workload": "mlp"}'):
            evaluator(workload="mlp")
        self.assertTrue(issubclass(dv.InternalError, RuntimeError))
        self.assertFalse(issubclass(dv.InternalError, dv.InputError))

    def test_a_temporary_folder_is_not_named(self):
        plan = dv.plan("resnet50", "a100x8", "ddp")
        broken = dv.Plan([], plan.text.replace('"mode": "view"', '"mode": "vieww"', 1).replace('"mode": "copy"', '"mode": "copyy"', 1))
        with self.assertRaises(dv.InputError) as raised:
            dv.predict(broken)
        self.assertTrue(str(raised.exception).startswith("plan.json: /buckets/0/mode: "), raised.exception)

    def test_files_that_are_not_there(self):
        for call in (lambda: dv.Trace("none*.json.gz"), lambda: dv.Job.from_config("none.toml"),
                     lambda: dv.diagnose("none.json.gz"), lambda: dv.Trace()):
            self.assertRaises(dv.InputError, call)


class OwnPolicies(unittest.TestCase):
    """A Python function as a policy."""

    def test_its_buckets_are_priced_as_given(self):
        @dv.policy(mode="copy", wait="end-of-backward")
        def pairs(gradients):
            return [gradients[at:at + 2] for at in range(0, len(gradients), 2)]

        plan = dv.plan("resnet50", "a100x8", pairs)
        self.assertEqual(len(plan.buckets), 81)  # 161 gradients
        self.assertEqual({bucket["mode"] for bucket in plan.buckets}, {"copy"})
        self.assertEqual(dv.predict(plan)[0].step_us, plan.step_us)
        found = dv.explore("resnet50", "a100x8", policies=["ddp", pairs])
        row = next(row for row in found.rows if row.policy == "pairs")
        self.assertEqual(row.buckets, 81)

    def test_the_groups_of_a_known_policy_cost_what_it_costs(self):
        known = dv.plan("resnet50", "a100x8", "threshold:cap=8MiB")

        @dv.policy
        def same(gradients):
            return [bucket["gradients"] for bucket in known.buckets]

        self.assertEqual(dv.plan("resnet50", "a100x8", same).step_us, known.step_us)

    def test_gradients_come_in_ready_order(self):
        seen = []

        @dv.policy
        def look(gradients):
            seen.extend(gradients)
            return [gradients]

        dv.plan("vgg16", "a100x8", look)
        self.assertEqual(seen, sorted(seen, key=lambda one: one.ready_us))
        self.assertEqual(seen[-1].bytes, 4 * seen[-1].elements)

    def test_wrong_groups_are_refused(self):
        for groups, sentence in [
            (lambda given: [given[1:]], "is in none of them"),
            (lambda given: [given, given[:1]], "stands in two of them"),
            (lambda given: [["layer9.weight"]], "no gradient \"layer9.weight\""),
            (lambda given: [given, []], "expected at least one gradient"),
        ]:
            with self.assertRaisesRegex(dv.InputError, sentence):
                dv.plan("resnet50", "a100x8", dv.policy(groups))
        with self.assertRaisesRegex(dv.InputError, "pp=1, zero=0"):
            dv.plan(dv.Job("llama3_8b", dp_shard=8), "h100x8", dv.policy(lambda given: [given]))

    def test_the_gradients_of_a_job_are_grouped(self):
        job = dv.Job("qwen3_0.6b", tp=2, dp=4, gbs=8, seq=512)
        alone = dv.plan(job, "h100x8", dv.policy(lambda given: [[one] for one in given]))
        known = dv.plan(job, "h100x8", "per-tensor")
        self.assertEqual(len(alone.buckets), len(known.buckets))
        self.assertEqual(alone.step_us, known.step_us)


class Values(unittest.TestCase):
    """Attributes hold what the documents' schemas say."""

    def test_fields_are_properties_of_the_schemas(self):
        for kind, schema, own in [(results.PolicyRow, "explore", set()), (results.JobRow, "jobs", {"interval"}),
                                  (results.Prediction, "predict", set()), (results.Pair, "explorations", set()),
                                  (results.BandwidthRow, "clusters", set())]:
            document = json.loads((SOURCE / "docs" / "schemas" / f"{schema}.schema.json").read_text())
            row = document["$defs"]["row"]
            names = {field.name for field in dataclasses.fields(kind)} - own
            self.assertLessEqual(names, set(row["properties"]), kind)

    def test_jobs_say_what_the_command_line_says(self):
        self.assertEqual(dv.Job("llama3_70b", tp=8, layers=[21, 20, 20, 19], sp=False).text, "llama3_70b:tp=8,layers=21/20/20/19,sp=no")
        self.assertEqual(dv.Job("gpt3").text, "gpt3")
        self.assertEqual(dv.Job("llama3_8b", tp=2).but(tp=4, pp=2), dv.Job("llama3_8b", tp=4, pp=2))
        self.assertEqual(dv.Machine("a100x8").what_if(link=0.5, world=64).changes, "link=0.5x,world=64")

    def test_saved_as_json_csv_and_page(self):
        found = dv.explore("resnet50", "a100x8", policies="ddp,exact")
        with tempfile.TemporaryDirectory() as folder:
            with open(found.save(os.path.join(folder, "a.json"))) as file:
                self.assertEqual(json.load(file), found.document)
            with open(found.save(os.path.join(folder, "a.csv"))) as file:
                self.assertEqual(len(file.readlines()), 1 + len(found.rows))
            with open(found.save(os.path.join(folder, "a.html"))) as file:
                self.assertTrue(file.read(64).startswith("<!doctype html>".upper()[:2]))
        self.assertIn("srcdoc", found._repr_html_())
        self.assertIn("best: ", found.report())

    def test_to_pandas(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            self.skipTest("no pandas here")
        found = dv.explore("resnet50", "a100x8", policies="ddp,exact")
        frame = found.to_pandas()
        self.assertEqual(list(frame["step_us"]), [row.step_us for row in found.rows])
        jobs = dv.explore(dv.Job("llama3_8b", dp_shard=8, seq=8192, gbs=8), "h100x8").to_pandas()
        self.assertIn("public_interval.p5_us", jobs.columns)


class Threads(unittest.TestCase):
    """Work goes on beside other threads, and gives the same."""

    def test_sweeps_in_threads_give_what_they_give_alone(self):
        names = ["resnet50", "vgg16", "gpt2", "resnet50", "vgg16", "gpt2"]
        alone = {name: dv.explore(name, "a100x8").document for name in set(names)}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for name, found in zip(names, pool.map(lambda one: dv.explore(one, "a100x8").document, names)):
                self.assertEqual(found, alone[name])

    def test_the_interpreter_is_free_meanwhile(self):
        counted, ended = [0], threading.Event()

        def count():
            while not ended.is_set():
                counted[0] += 1
                time.sleep(0.001)

        counter = threading.Thread(target=count)
        counter.start()
        before, began = counted[0], time.monotonic()
        dv.explore("resnet152", "a100x8", policies=["torch-ddp", "threshold"], points=300)
        took, more = time.monotonic() - began, counted[0] - before
        ended.set()
        counter.join()
        self.assertGreater(more, 20 * took, f"{more} turns in {took:.2f} s")  # of a thousand a second


class Evaluations(unittest.TestCase):
    """`evaluate` gives what explore gives, in the process and as a command."""

    def test_as_explore_has_it(self):
        ask = dv.Evaluator()
        found = dv.explore("resnet50", "a100x8", policies=["ddp", "threshold:cap=8MiB", "sharded", "exact"])
        asked = [row for row in found.rows if not row.as_run]
        self.assertIn("exact", [row.policy for row in asked])
        for row in asked:
            self.assertEqual(ask(workload="resnet50", cluster="a100x8", policy=row.policy).step_us, row.step_us, row.policy)

    def test_the_command_answers_line_by_line(self):
        lines = [{"id": 7, "workload": "resnet50", "cluster": "a100x8", "policy": "ddp:torch=2.14,cap=8MiB"},
                 {"id": "b", "workload": "resnet50", "cluster": "a100x8", "policy": "dpp"},
                 {"workload": "resnet50", "clustr": "a100x8"}, "no object",
                 {"job": "llama3_8b:dp_shard=8,seq=8192,gbs=8", "cluster": "h100x8"}]
        ended = told("evaluate", input="\n".join(map(json.dumps, lines)) + "\n\n{")
        answers = [json.loads(line) for line in ended.stdout.splitlines()]
        self.assertEqual(ended.returncode, 0)
        self.assertEqual(len(answers), 6)
        self.assertEqual(answers[0]["id"], 7)
        self.assertIn("bucket_cap_mb=8", answers[0]["paste"])
        self.assertEqual((answers[1]["id"], "dpp" in answers[1]["error"]), ("b", True))
        self.assertIn('did you mean "cluster"?', answers[2]["error"])
        self.assertIn("expected", answers[3]["error"])
        self.assertGreater(answers[4]["step_us"], 0)
        self.assertTrue(answers[4]["memory"]["fits"])
        self.assertIn("error", answers[5])
        ask = dv.Evaluator()
        for line, answer in zip(lines, answers):
            self.assertEqual(json.loads(ask.answer(json.dumps(line))), answer)

    def test_a_line_has_the_same_keys_through_every_door(self):
        said = json.loads(dv.Evaluator().answer('{"workload": "mlp", "xxxxxxxxxxxxxxxx": 1}'))["error"]
        keys = set(said.split("known keys: ")[1].split(", "))
        self.assertGreater(len(keys), 10)
        page = (SOURCE / "docs" / "agents.md").read_text(encoding="utf-8")
        table = page.split("| key | what it says |\n| --- | --- |\n")[1].split("\n\n")[0]
        self.assertEqual({key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}, keys)
        self.assertEqual(set(re.findall(r'"(\w+)"', mcp.evaluate.__doc__)) - {"answers", "error"}, keys)
        lines = [{"workload": "mlp", key: {}} for key in sorted(keys)]  # an object is right for none of them
        answers = mcp.evaluate(lines)["answers"]
        printed = told("evaluate", input="\n".join(map(json.dumps, lines))).stdout.splitlines()
        for line, answer, row in zip(lines, answers, printed):
            self.assertEqual(json.loads(row), answer)
            self.assertNotIn("unknown key", answer["error"])
            with self.assertRaises(dv.InputError) as raised:
                dv.Evaluator()(**line)
            self.assertEqual(str(raised.exception), answer["error"])

    def test_a_job_is_that_of_explore(self):
        job = dv.Job("llama3_8b", dp_shard=8, seq=8192, gbs=8)
        row = dv.explore(job, "h100x8").asked
        answer = dv.Evaluator()(job=job.text, cluster="h100x8")
        self.assertEqual((answer.step_us, answer.held_bytes, answer.interval), (row.step_us, row.peak_bytes, row.interval))


if __name__ == "__main__":
    unittest.main()
