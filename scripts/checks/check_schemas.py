#!/usr/bin/env python3
"""Holds the JSON Schemas against files, against the tool, and against broken files: those that lie in docs/schemas/, and
those of files that the tool reads, which it prints (`dovetail show schemas`).

  scripts/checks/check_schemas.py                    every shipped file; every schema rejects its mutants;
                                              the tool is build/dovetail, or the one on the path
  scripts/checks/check_schemas.py --tool BUILD/dovetail
                                              also what the tool writes, and that the tool's reader
                                              rejects the mutants that the schema rejects;
                                              --part writes or --part reads only one of both;
                                              --mutants N: so many of each kind of file
  scripts/checks/check_schemas.py FILE...            these files; their "schema" names the schema

A schema is a JSON Schema of draft 2020-12. One may refer to another as "explore.schema.json". Mutants
are made of a valid file, one change each: a required key is left out, an unknown key is added, a number
becomes a word. Exit code 1 where anything is not as it should be; one line says what.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import concurrent.futures
import copy
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "schemas"
SHIPPED = ["models/clusters/*.json", "models/workloads/*.json", "traces/measured/*.json",
           "docs/examples/*.json", "answers/validation/data/gpu_*.json", "tests/fuzz/corpus/profile/all_keys.json"]
# Files below a shipped pattern that are no input of the tool.
NO_INPUT = {"traces/measured/mlp-1gbit.json", "traces/measured/mlp-1gbit-variants.json",
            "traces/measured/transformer-1gbit.json"}
# A level of a file holds at most so many mutated objects: the rest of a list is alike.
MOST_MUTANTS = 400
# Mutants that are also given to the tool, per kind of file.
MOST_READ = 12


def renamed(value, prefix):
    """A copy whose references lead into `prefix` or, to other files, into their place beside it."""
    if isinstance(value, list):
        return [renamed(item, prefix) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: renamed(item, prefix) for key, item in value.items()}
    target = result.get("$ref")
    if isinstance(target, str):
        own = target.startswith("#")
        result["$ref"] = prefix + target[1:] if own else "#/$defs/" + target.replace("#", "")
    return result


def printed_schemas(tool):
    """File name -> schema, of those that the tool prints; none without a tool."""
    def shown(what):
        ended = run_tool(tool, ["show", what, "--json"], ROOT)
        return json.loads(ended.stdout)

    names = [row["schema"] for row in shown("schemas")["rows"]] if tool else []
    return {kind_of({"schema": name}) + ".schema.json": shown(name) for name in names}


def load_schemas(folder, tool):
    """Name, e.g. "plan" -> validator. Each schema carries the others, under their file names."""
    files = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.schema.json"))}
    files.update(printed_schemas(tool))
    others = {}
    for name, schema in files.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        body = renamed(schema, "#/$defs/" + name)
        body.pop("$id", None)
        body.pop("$schema", None)
        others[name] = body
    validators = {}
    for name, schema in files.items():
        whole = renamed(schema, "#")
        whole.pop("$id", None)
        whole["$defs"] = {**whole.get("$defs", {}), **others}
        validators[name.removesuffix(".schema.json")] = jsonschema.Draft202012Validator(whole)
    return validators


def kind_of(document):
    """The name of a document's schema; a profile may do without the key, and answers of evaluate have none."""
    if not isinstance(document, dict):
        return "?"
    default = "profile" if "profile" in document else "evaluate"
    return document.get("schema", f"dovetail.{default}/1").removeprefix("dovetail.").partition("/")[0]


def first_error(validator, document):
    """The deepest reason why the document is not valid, with its place; or None."""
    error = jsonschema.exceptions.best_match(validator.iter_errors(document))
    return f"/{'/'.join(map(str, error.absolute_path))}: {error.message[:160]}" if error else None


def places(value, path=()):
    """Every object of a document with its path; of a list only the first two entries."""
    if isinstance(value, dict):
        yield path, value
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:2]):
            yield from places(item, (*path, index))


def at(document, path):
    for key in path:
        document = document[key]
    return document


# Keys below which any key is known, and keys that nobody reads.
ANY_BELOW = {"tool", "notes", "figures", "passes", "settings", "attribution", "conditions"}
NOT_READ = {"link_mbit_per_s", "cpu_share_of_communication", "what", "forward"}


def abridged(value):
    """Lists of objects and lists cut to the two that are mutated: the others would only be read again and again."""
    if isinstance(value, dict):
        return {key: abridged(item) for key, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        return [abridged(item) for item in value[:2]]
    return value


LEFT_OUT = object()


def mutants(document):
    """(what is changed, the path of the object, its key, the new value)."""
    for path, value in places(document):
        where = "/" + "/".join(map(str, path))
        if ANY_BELOW & set(path):
            continue
        yield f"{where}: with an unknown key", path, "no_such_key", 1
        for key, item in value.items():
            if key in NOT_READ or isinstance(item, bool) or not isinstance(item, (int, float)):
                continue
            yield f"{where}/{key}: a word for a number", path, key, "many"
    for key in document:
        yield f"/{key}: left out", (), key, LEFT_OUT


def mutated(document, path, key, value):
    changed = copy.deepcopy(document)
    if value is LEFT_OUT:
        del at(changed, path)[key]
    else:
        at(changed, path)[key] = value
    return changed


def is_required(validator, what):
    key = what.removesuffix(": left out").removeprefix("/")
    return key in validator.schema["required"]


class Report:
    def __init__(self):
        self.problems = []
        self.valid = self.rejected = self.refused = 0

    def problem(self, text):
        self.problems.append(text)
        print(text)


def check_document(validators, name, document, report):
    kind = kind_of(document)
    if kind not in validators:
        report.problem(f"{name}: no schema \"{kind}\"")
        return
    reason = first_error(validators[kind], document)
    if reason:
        report.problem(f"{name}: not valid by {kind}.schema.json: {reason}")
    else:
        report.valid += 1


def check_mutants(validators, name, document, report):
    """Every mutant is invalid; returns what was changed in each."""
    validator = validators[kind_of(document)]
    short = abridged(document)
    if reason := first_error(validator, short):
        report.problem(f"{name}: abridged, not valid by {kind_of(document)}.schema.json: {reason}")
    rejected = []
    for what, *change in itertools.islice(mutants(document), MOST_MUTANTS):
        if what.endswith("left out") and not is_required(validator, what):
            continue
        if validator.is_valid(mutated(short, *change)):
            report.problem(f"{name}: {what} is valid by {kind_of(document)}.schema.json")
        else:
            report.rejected += 1
            rejected.append((what, change))
    return rejected


def run_tool(tool, arguments, folder, lines=""):
    return subprocess.run([str(tool), *arguments], cwd=folder, text=True, check=False, input=lines,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)


def check_reader(tool, arguments, name, document, chosen, folder, report):
    """The tool refuses what the schema rejects, a list of mutants: exit code 2 and one line."""
    def read(index):
        file = pathlib.Path(folder) / f"mutant{index}.json"
        file.write_text(json.dumps(mutated(document, *chosen[index][1])))
        return run_tool(tool, [str(file) if word == "FILE" else word for word in arguments], folder)

    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for (what, _), ended in zip(chosen, pool.map(read, range(len(chosen)))):
            if ended.returncode == 2 and ended.stderr.count("\n") == 1:
                report.refused += 1
            else:
                report.problem(f"{name}: {what}: dovetail {' '.join(arguments)} ends with "
                               f"{ended.returncode}, expected 2 and one line: {ended.stderr[:160]}")


STEP = {  # a step that two ranks of this machine run in milliseconds
    "schema": "dovetail.program/1", "kind": "program", "name": "two-layers", "world_size": 2,
    "groups": [{"id": 0, "name": "dp", "ranks": [0, 1]}],
    "tensors": [{"id": i, "name": name, "kind": kind, "dtype": "f32", "shape": [64, 64]}
                for i, (name, kind) in enumerate([("w1", "parameter"), ("w2", "parameter"),
                                                  ("w1.grad", "gradient"), ("w2.grad", "gradient"),
                                                  ("loss", "activation")])],
    "ops": [{"id": 0, "name": "forward", "phase": "forward", "dtype": "f32",
             "work": {"kind": "gemm", "m": 64, "n": 64, "k": 64}, "reads": ["w1", "w2"],
             "writes": ["loss"]}] +
           [{"id": 3 - i, "name": f"w{i}.backward", "phase": "backward", "dtype": "f32",
             "work": {"kind": "gemm", "m": 64, "n": 64, "k": 64}, "reads": ["loss"],
             "writes": [f"w{i}.grad"]} for i in (2, 1)] +
           [{"id": 5 - i, "name": f"w{i}.update", "phase": "optimizer", "dtype": "f32",
             "work": {"kind": "memory", "traffic_bytes": 49152, "work_flop": 8192},
             "reads": [f"w{i}.grad"], "writes": [f"w{i}"],
             "effect": {"kind": "update", "elementwise": True}} for i in (2, 1)],
    "reductions": [{"gradient": f"w{i}.grad", "group": "dp", "op": "average"} for i in (2, 1)]}

TRACE = ROOT / "tests/recordings/kineto/traces/dlrm-v100x8/rank5.json.gz"
# Name of a file that is made -> the command that makes it; where it ends with .json, by printing it.
MADE = [
    ("ddp.plan", "plan --workload mlp --cluster a100x8 --policy torch-ddp:cap=8MiB -o ddp.plan"),
    ("cut.plan", "plan --workload mlp --cluster a100x8 --policy sharded:cap=1MiB,k=2,"
                 "gather=next-forward -o cut.plan"),
    ("scaled.plan", "plan --workload mlp --cluster a100x8 --policy source-improved:scale=optimizer"
                    " -o scaled.plan"),
    ("pipeline.plan", "plan --workload mlp --cluster a100x8 --policy pipeline:stages=2,k=4"
                      " -o pipeline.plan --trace pipeline.trace"),
    ("pipeline.trace", None),
    ("ddp.costs", "predict --plan ddp.plan --costs ddp.costs"),
    ("explain.json", "explain ddp.plan --json"),
    ("explain-pipeline.json", "explain pipeline.plan --json"),
    ("explore.json", "explore --workload mlp --cluster a100x8 --thresholds 1MiB,4MiB --json"
                     " --html explore.html"),
    ("explore.html", None),
    ("explorations.json", "explore --workload mlp --workload resnet18 --cluster a100x8 --policies ddp,one-bucket"
                          " --thresholds 4MiB --json"),
    ("explored-plan.json", "explore --workload mlp --cluster a100x8 --plan ddp.plan --policies exact --json"),
    ("jobs.json", f"explore --job {ROOT}/tests/models/networks/data/tiny_llama/config.json:tp=2,pp=2,gbs=2 --cluster h100x4 --json"),
    ("reshard.json", "reshard --shape 8x8 --mesh 4 --from S(0) --to S(1) --json"),
    ("list.json", "show clusters --json"),
    ("schemas.json", "show schemas --json"),
    ("validate.json", "validate public --tables tables --json"),
    ("gpu-steps.json", "validate gpu --json"),
    ("validated-job.json", f"validate job {ROOT}/tests/frameworks/data/made_up_megatron.log --cluster h100x8 --json"),
    ("worlds.json", "validate collectives world4.log world8.log world16.log --fit-ranks 8 --json"),
    ("profile.json", "explore --workload mlp-1000mbit --policies exact --json"),
    ("run.plan", "plan --workload ./step.program --cluster a100x2_nv12 --policy per-tensor -o run.plan"
                 " --trace predicted.trace"),
    ("predicted.trace", None),
    ("predict.json", "predict run.plan --json"),
    ("run.json", "run --plan run.plan --ranks 2 --rounds 1 --steps 2 --warmup 0 --json"
                 " --trace measured.trace"),
    ("measured.trace", None),
    ("report.json", "report run.plan predicted.trace measured.trace --json"),
    ("run.html", "run --plan run.plan --ranks 2 --rounds 1 --steps 2 --warmup 0 --html run.html"),
    ("comparison.json", "compare predicted.trace measured.trace --json"),
    ("difference.json", "compare measured.trace predicted.trace --json"),
    ("clusters.json", f"compare {ROOT}/models/clusters/a100x8.json {ROOT}/models/clusters/h200x8.json --json"),
    ("diagnosis.json", f"diagnose {TRACE} --json --html diagnosis.html"),
    ("diagnosis.html", None),
    ("imported.profile", f"import kineto {TRACE} -o imported.profile"),
    ("selftest.json", "selftest --backend cuda --json"),
    ("export.json", "export ddp.plan --to torch --json"),
    ("export-job.json", "export --job llama3_8b:dp_shard=8,seq=8192 --to torchtitan --json"),
    ("version.json", "version --json"),
]
# Questions to evaluate: the answer to each is a document.
ASKED = ['{"workload": "mlp", "cluster": "a100x8", "policy": "ddp", "notes": true}',
         '{"job": "llama3_8b:dp_shard=8,seq=8192", "cluster": "h100x8", "id": 7}',
         '{"workload": "mlp", "cluster": "a100x8", "want": "gradients"}',
         '{"workload": "mlp", "cluster": "a100x8", "policy": "ddp", "want": "plan"}',
         '{"workload": "no such"}']


def log_of_world(ranks):
    """What all_reduce_perf prints on nodes of four GPUs, as far as readers need it."""
    lines = ["# Collective test starting: all_reduce_perf"]
    lines += [f"#  Rank {rank:2d} Group  0 Pid {4000 + rank:6d} on     node{rank // 4} device {rank % 4:2d}"
              " [0000:05:00] NVIDIA H100 80GB HBM3" for rank in range(ranks)]
    lines.append("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong")
    for size in (2**20, 2**24, 2**28):
        us = 20 * ranks + size / 1e5
        rates = f"{us:9.2f} {size / us / 1e3:7.2f} {2 * (ranks - 1) / ranks * size / us / 1e3:7.2f}      0"
        lines.append(f"{size:12d} {size // 4:12d}     float     sum      -1 {rates} {rates}")
    return "\n".join(lines) + "\n"


def figures_of(page):
    """The JSON that stands in an HTML report."""
    _, _, rest = page.partition('<script type="application/json" id="report">')
    return json.loads(rest.partition("</script>")[0])


def made_by_tool(tool, folder, part, report):
    """The documents that the tool writes, by name."""
    (pathlib.Path(folder) / "step.program").write_text(json.dumps(STEP))
    for ranks in (4, 8, 16):
        (pathlib.Path(folder) / f"world{ranks}.log").write_text(log_of_world(ranks))
    tables = pathlib.Path(folder) / "tables"
    shutil.copytree(ROOT / "answers/validation/data", tables)
    longest = tables / "nanotron_h100.csv"  # of it a few rows: all of them are 842 jobs
    longest.write_text("".join(longest.read_text().splitlines(keepends=True)[:40]))
    documents = {"step.program": STEP}
    for name, command in MADE:
        if part == "reads" and name not in READ:
            continue
        text = ""
        if command is not None:
            ended = run_tool(tool, command.split(), folder)
            text = ended.stdout
            if ended.returncode not in (0, 3):
                report.problem(f"dovetail {command}: ends with {ended.returncode}: {ended.stderr}")
                continue
        file = pathlib.Path(folder) / name
        if name.endswith(".html") and file.exists():
            documents[name] = figures_of(file.read_text())
        elif name.endswith(".json") or file.exists():
            documents[name] = json.loads(text if name.endswith(".json") else file.read_text())
    if part != "reads":
        answers = run_tool(tool, ["evaluate"], folder, "\n".join(ASKED) + "\n").stdout.splitlines()
        documents.update({f"evaluate: {ask}": json.loads(answer) for ask, answer in zip(ASKED, answers, strict=True)})
    return documents


# Those of MADE that are read again.
READ = {"ddp.plan", "pipeline.plan", "pipeline.trace", "ddp.costs"}
# Which command reads a kind of file.
READERS = {
    "plan": ["show", "FILE"],
    "program": ["show", "program", "--workload", "FILE"],
    "profile": ["show", "program", "--workload", "FILE"],
    "cluster": ["explore", "--workload", "mlp", "--cluster", "FILE", "--policies", "naive"],
    "costs": ["predict", "--plan", "ddp.plan", "--cluster", "FILE"],
    "trace": ["compare", "FILE", "FILE"],
    "gpu": ["validate", "gpu", "--gpu", "FILE"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", type=pathlib.Path)
    parser.add_argument("--part", choices=["writes", "reads"])
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--mutants", type=int, default=MOST_READ)
    options = parser.parse_args()
    if options.tool and os.environ.get("DOVETAIL_TOOL"):  # as in the other tests; a build without a sanitizer
        options.tool, options.mutants = pathlib.Path(os.environ["DOVETAIL_TOOL"]), MOST_READ
    built = ROOT / "build" / "dovetail"
    validators = load_schemas(FOLDER, options.tool or (built if built.exists() else shutil.which("dovetail")))
    report = Report()
    if options.files:
        for path in options.files:
            check_document(validators, str(path), json.loads(path.read_text()), report)
        return finish(report)
    documents = {}
    for path in sorted(path for pattern in SHIPPED for path in ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        if name not in NO_INPUT:
            documents[name] = laid_over(path)
    with tempfile.TemporaryDirectory() as folder:
        if options.tool:
            documents.update(made_by_tool(options.tool.resolve(), folder, options.part, report))
        seen = set()
        for name, document in documents.items():
            check_document(validators, name, document, report)
            kind = kind_of(document)
            if kind in seen or kind not in validators:
                continue
            seen.add(kind)  # mutants of the first file of each kind
            rejected = check_mutants(validators, name, document, report)
            if options.tool and options.part != "writes" and kind in READERS:
                chosen = rejected[::max(1, len(rejected) // options.mutants)]
                check_reader(options.tool.resolve(), READERS[kind], name, document, chosen, folder, report)
    unseen = set(validators) - seen
    if options.tool and options.part != "reads" and unseen:
        report.problem(f"no file for the schemas: {', '.join(sorted(unseen))}")
    return finish(report)


def laid_over(path):
    """A file; a cluster that is `of` another one laid over it, as the tool reads it (JSON Merge Patch, RFC 7396)."""
    own = json.loads(path.read_text())
    if "of" not in own:
        return own
    return merged(json.loads((path.parent / f"{own.pop('of')}.json").read_text()), own)


def merged(base, patch):
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return patch
    together = {key: merged(base.get(key), value) for key, value in patch.items() if value is not None}
    return {key: value for key, value in (base | together).items() if key not in patch or patch[key] is not None}


def finish(report):
    print(f"{report.valid} files valid, {report.rejected} mutants rejected by their schema, "
          f"{report.refused} refused by the tool, {len(report.problems)} problems", file=sys.stderr)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
