// The page: which sections a report has, and in which order.
// SPDX-License-Identifier: Apache-2.0
"use strict";

function section(id, title, children) {
  return {id, title, node: element("section", {"aria-labelledby": `${id}-title`}, element("h2", {id: `${id}-title`}, title), ...children)};
}

function kindOf(origin) { return element("span", {class: `kind ${origin}`}, origin === "measured" ? "measured" : "predicted (simulated)"); }

// Commit, build type and compiler of the tool.
function toolOf(report) {
  const facts = ["commit", "build", "compiler"].filter((name) => report.tool?.[name]).map((name) => `${name === "commit" ? "commit " : ""}${report.tool[name]}`);
  return facts.length > 0 ? ` (${facts.join(", ")})` : "";
}

// The lines that the command begins with: what to set, what that gives, what is left.
function answerOf(answer) {
  const line = (name, said) => element("div", {}, element("dt", {}, name), element("dd", {}, said));
  const set = answer.set.length > 0 ? answer.set.map((text) => element("code", {}, text)) : element("strong", {}, answer.nothing);
  return element("dl", {class: answer.set.length > 0 ? "answer" : "answer nothing"}, line("set", set), line("gives", answer.gives), line("left", answer.left));
}

function headOf(report) {
  const facts = report.facts.map((fact) => element("div", {}, element("dt", {}, fact.name), element("dd", {}, fact.value)));
  document.getElementById("head").append(
    element("h1", {}, report.title), report.answer ? answerOf(report.answer) : "", element("p", {class: "faint"}, `dovetail ${report.tool?.version ?? ""}${toolOf(report)}; made by `, element("code", {}, report.command)),
    facts.length > 0 ? element("dl", {class: "facts"}, facts) : "");
}

function foundSection(report) {
  const found = report.found;
  if (!found) return null;
  const gap = found.lower_bound_us ? percent(found.step_us / found.lower_bound_us - 1, 2) : null;
  // What a job without a plan would run.
  const usual = report.timelines.find((line) => line.policy === report.usual && report.usual !== found.policy);
  const explore = report.results.find((result) => result.kind === "explore");
  const alike = !explore || explore.best.micro_steps === 1;
  const fact = (name, value) => (value === null ? null : element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  return section("plan", "Our plan", [element("p", {}, kindOf("simulated"), " ", element("code", {}, found.policy), report.next.length > 0 ? ": " : null,
    report.next.length > 0 ? element("a", {href: "#paste"}, "how to set it") : null),
    element("dl", {class: "facts"}, fact("step", time(found.step_us)), usual && alike ? fact(usual.title, `${time(usual.step_us)} (${percent(usual.step_us / found.step_us - 1)})`) : null,
      fact("exposed communication", time(found.exposed_us)),
      fact("buckets", String(found.buckets)), fact("lower bound", found.lower_bound_us ? time(found.lower_bound_us) : null), fact("gap to the bound", gap),
      fact("interval, p10 to p90", found.p10_us ? `${time(found.p10_us)} .. ${time(found.p90_us)}` : null)),
    ...report.remarks.map((remark) => element("p", {}, remark)),
    found.lower_bound_us ? element("p", {class: "faint"}, "No schedule of whole gradients in consecutive buckets on one stream is faster than the " +
      "bound on this model; the bound ignores contention, copies and the host, so part of the gap may not be reachable.") : null]);
}

function hasRanks(line) { return new Set(line.rows.map((row) => row.rank)).size > 1; }

// Of a pipeline the bubble: there a receive is in flight while its sender still computes.
function waitingOf(line) {
  return line.bubble_us === null ? `exposed communication ${time(line.exposed_us)}` : `bubble ${time(line.bubble_us)} (${share(line.bubble_us / line.step_us)})`;
}

function timelineSection(report) {
  if (report.timelines.length === 0) return null;
  const many = report.timelines.length > 1;
  const shared = sharedSpan(report.timelines);
  const scale = many ? element("p", {class: "faint"}, shared ? "All on one scale of time." : "Each on its own scale of time: one is several times as long as another.") : null;
  return section("timeline", "The step as it runs", [scale, ...report.timelines.flatMap((line) => [
    many ? element("h3", {}, line.title) : null,
    element("p", {}, kindOf(line.origin), `${line.steps > 1 ? ` step ${line.step},` : ""} rank ${line.rank}${hasRanks(line) ? " (the slowest)" : ""}: ${time(line.step_us)}, ${waitingOf(line)}; `,
      `${line.policy}${line.machine ? ` on ${line.machine}` : ""}${line.ranks_left_out > 0 ? `; ${counted(line.ranks_left_out, "rank")} more not shown` : ""}${spanOf(line)[0] < -line.step_us / 200 ? "; left of 0: begun in the step before" : ""}`),
    ...timelineParts(line, shared)])]);
}

function causesSection(report) {
  const lines = report.timelines.filter((line) => line.breakdown_us !== null);
  if (lines.length === 0) return null;
  const cut = lines.map((line) => ({name: line.title, parts: stepParts(line)}));
  const bars = lines.some((line) => line.bubble_us !== null) ? cut : emphasize(cut, ["idle"]);  // a bubble has its colour
  return section("causes", "Where the time of a step goes", [
    element("p", {}, "The compute stream of the slowest rank, cut into activities; stalls by what they waited for. The parts add up to the step."),
    partsLegend(bars), stackedBars("causes", "Where the time of a step goes; the same numbers stand in the table below.", bars),
    folded("The same as a table", partsTable("Where the time goes", bars))]);
}

function comparisonSection(comparison) {
  const rows = Object.entries({"step time": comparison.step_time, ...comparison.attribution, communication: comparison.communication,
    "exposed communication": comparison.exposed}).filter(([, pair]) => pair.predicted_us !== 0 || pair.measured_us !== 0);
  const error = (pair) => (pair.error_percent === null ? "" : percent(pair.error_percent / 100, 2));
  const mark = (side, times) => ({at: times.median_us / 1e3, low: times.p10_us / 1e3, high: times.p90_us / 1e3, colour: `--${side}`, words: side});
  const steps = [{name: "step time, p10 to p90", marks: ["predicted", "measured"].map((side) => mark(side, comparison[side].step_times))}];
  const bars = ["predicted", "measured"].map((side) => ({name: side, parts: Object.entries(comparison.attribution)
    .map(([what, pair]) => [activityColours[what] ?? "--kernel", what, pair[`${side}_us`]]).filter((part) => part[2] > 0)}));
  const notValid = comparison.measured.provenance.notes?.["not valid because"];
  return section("comparison", "Predicted beside measured", [
    element("p", {}, `Measured: ${comparison.measured.provenance.backend}, ${comparison.measured.provenance.machine}, ${counted(comparison.measured.steps, "step")}. ` +
      `The step is ${error(comparison.step_time)} off (predicted against measured).`),
    notValid ? element("p", {}, element("strong", {}, `The measurement is NOT valid: ${notValid}.`)) : null,
    legend([["var(--predicted)", "predicted"], ["var(--measured)", "measured: median, p10 to p90"]]),
    intervals("steps", "Step time, predicted and measured, with their spread", steps, "ms"),
    partsLegend(bars), stackedBars("comparison", "Where the step's time goes, predicted and measured; the same numbers stand in the table below.", bars),
    table("Predicted beside measured", ["", "predicted ms", "measured ms", "difference ms", "error"],
      rows.map(([name, pair]) => [name, (pair.predicted_us / 1e3).toFixed(3), (pair.measured_us / 1e3).toFixed(3), (pair.difference_us / 1e3).toFixed(3), error(pair)])),
    folded("Buckets", table("Buckets", ["bucket", "size", "ends, predicted ms", "measured ms", "exposed, predicted ms", "measured ms"],
      comparison.buckets.map((bucket) => [bucket.name, bytes(bucket.size_bytes), (bucket.end.predicted_us / 1e3).toFixed(3),
        (bucket.end.measured_us / 1e3).toFixed(3), (bucket.exposed.predicted_us / 1e3).toFixed(3), (bucket.exposed.measured_us / 1e3).toFixed(3)]))),
    ...comparison.notes.map((note) => element("p", {class: "faint"}, note))]);
}

function runSection(run) {
  const rows = run.rows.map((row) => ({name: row.plan, marks: [
    row.predicted_step_us === null ? null : {at: row.predicted_step_us / 1000, colour: "--predicted", words: "predicted",
      low: row.predicted_p10_us ? row.predicted_p10_us / 1000 : null, high: row.predicted_p90_us ? row.predicted_p90_us / 1000 : null},
    {at: row.measured_step_us / 1000, low: row.p10_us / 1000, high: row.p90_us / 1000, colour: "--measured", words: "measured median",
      more: [["steps", row.steps], ["wrong elements", `${row.wrong_elements} of ${row.checked_elements}`]]}].filter((mark) => mark !== null)}));
  return section("run", "Measured", [
    element("p", {}, kindOf("measured"), ` ${run.backend} on ${run.machine}; link: ${run.link}; ${run.date}`),
    element("p", {}, `${run.belief}${run.belief ? ". " : ""}${run.valid ? "The measurement is valid." : `The measurement is NOT valid: ${run.why_not_valid.join("; ")}.`}`),
    legend([["var(--predicted)", "predicted"], ["var(--measured)", "measured: median, p10 to p90"]]),
    intervals("run", "Step time of each plan, predicted and measured; the same numbers stand in the table below.", rows, "step, ms"),
    table("Measured", [["plan", "text"], "buckets", "predicted ms", "measured ms", "p10", "p90", "error", "wrong elements"], run.rows.map((row) => [
      [row.plan, "text"], row.buckets, row.predicted_step_us === null ? "" : ms(row.predicted_step_us), ms(row.measured_step_us), ms(row.p10_us), ms(row.p90_us),
      row.predicted_step_us === null ? "" : percent(row.predicted_step_us / row.measured_step_us - 1, 2), `${row.wrong_elements} of ${row.checked_elements}`]))]);
}

const exposedWords = {
  host_us: ["--idle", "exposed: the host was late"], straggler_us: ["--stall-4", "exposed: another rank was late"], bubble_us: ["--stall-4", "exposed: another stage was late"], launch_order_us: ["--stall-2", "exposed: launch order"],
  bucket_closed_late_us: ["--stall-3", "exposed: the bucket closed late"], serialised_us: ["--stall-2", "exposed: backward waited for it"],
  no_prefetch_us: ["--stall-3", "exposed: gathered when needed"], link_us: ["--stall", "exposed: the link"],
};

// The largest part that is not compute has the strongest colour, whichever it is, or if it is one of these.
function emphasize(bars, these = null) {
  const strongest = "--stall";
  const losses = groupsOf(bars.flatMap((bar) => bar.parts).filter(([, words]) => !["compute", "forward", "backward", "optimizer"].includes(words)), ([, words]) => words);
  const [own, most] = greatest(losses, (parts) => sumOf(parts, (part) => part[2]))?.[0] ?? [];
  if (these && !these.includes(most)) return bars;
  const colour = ([now, words]) => (words === most ? strongest : now === strongest ? own : now);
  return bars.map((bar) => ({...bar, parts: bar.parts.map((part) => [colour(part), part[1], part[2]])}));
}

// Of each change the rank that gains most.
function mostOf(ranks) {
  const all = ranks.flatMap((rank) => rank.what_ifs.map((entry) => ({rank: rank.rank, ...entry})));
  return groupsOf(all, (entry) => entry.change).map((entries) => greatest(entries, (entry) => entry.gain_us));
}

const mebibytes = (bytes) => (bytes === null ? "" : (bytes / 2 ** 20).toFixed(2));

function diagnosisSection(diagnosis) {
  const inWords = (cause) => (diagnosis.fsdp === null ? exposedWords[cause][1] : exposedWords[cause][1].replace("bucket", "group"));
  const bars = emphasize(diagnosis.ranks.flatMap((rank) => rank.steps.map((step) => ({name: `rank ${rank.rank} ${step.name}`, parts: [
    ["--forward", "compute", step.compute_us], ...Object.entries(step.exposed_by_cause).map(([cause, us]) => [exposedWords[cause][0], inWords(cause), us]),
    ["--gap", "nothing on the GPU", step.idle_us]].filter((part) => part[2] > 0)}))).filter((bar) => bar.parts.length > 0));
  // Of many ranks the longest step each, and all of them below.
  const few = bars.length <= 8 ? bars : groupsOf(bars, (bar) => bar.name.split(" ")[1]).map((steps) => greatest(steps, (bar) => sumOf(bar.parts, (part) => part[2])));
  const gain = (entry, words) => ({at: entry.gain_us / 1000, low: entry.gain_low_us / 1000, high: entry.gain_high_us / 1000, colour: "--predicted", words});
  const several = diagnosis.ranks.length > 1;
  const row = (entry) => ({name: several ? `rank ${entry.rank}: ${entry.change}` : entry.change, marks: [gain(entry, "gain")]});
  const whatIfs = mostOf(diagnosis.ranks).map(row);
  const ofEach = several ? diagnosis.ranks.flatMap((rank) => rank.what_ifs.map((entry) => row({rank: rank.rank, ...entry}))) : [];
  const buckets = diagnosis.buckets;
  const settings = buckets === null ? [] : buckets.settings.map((entry) => ({name: entry.setting.length > 60 ? `${entry.setting.slice(0, 57)}...` : entry.setting,
    shaded: buckets.alike.includes(entry.setting), marks: [{...gain(entry, entry.is_recorded ? "gain (recorded)" : "gain"), more: [["buckets", entry.buckets]]}]}));
  return section("diagnosis", "Why the step is slow", [
    element("p", {}, element("strong", {}, diagnosis.headline)), ...diagnosis.sentences.map((sentence) => element("p", {}, sentence)),
    ...(bars.length === 0 ? [] : [element("p", {}, kindOf("measured"), " by the profiler"), partsLegend(few),
      stackedBars("diagnosis", "Where the time of each recorded step goes; the same numbers stand in the table below.", few),
      folded("The same as a table", partsTable("Where the time goes", bars))]),
    diagnosis.collectives.length === 0 ? null : element("h3", {}, "Collectives by themselves (measured; bus bandwidth as nccl-tests has it)"),
    diagnosis.collectives.length === 0 ? null : table("Bus bandwidth of each kind and size", [["collective", "text"], "MiB", "ranks", "ms", "GB/s", "shipped machine GB/s", ["machine", "text"]],
      diagnosis.collectives.map((one) => [[one.collective, "text"], (one.bytes / 2 ** 20).toFixed(2), one.ranks, ms(one.own_us), one.bus_gb_per_s.toFixed(1),
        one.machine_bus_gb_per_s === null ? "" : one.machine_bus_gb_per_s.toFixed(1), [one.machine ?? "", "text"]])),
    diagnosis.fsdp === null ? null : table("Groups of FSDP2", [["group", "text"], "parameters", "gathered MiB", "in forward", "in backward", "reduced MiB", "reductions", "all-reduces"],
      diagnosis.fsdp.groups.map((group) => [[group.name || "root", "text"], group.elements ?? "", mebibytes(group.gathered_bytes), group.gathers_in_forward, group.gathers_in_backward,
        mebibytes(group.reduced_bytes), group.reductions, group.all_reduces])),
    diagnosis.late.length === 0 ? null : table("Who was late", ["rank", "collectives", "others waited ms", ["mostly with", "text"]],
      diagnosis.late.map((late) => [late.rank, late.collectives, ms(late.waiting_of_others_us), [late.mostly_with || "nothing stands out", "text"]])),
    whatIfs.length === 0 ? null : element("h3", {}, "What a change would give, at most (simulated)"),
    whatIfs.length === 0 ? null : intervals("what-if", "Gain of each change with its interval", whatIfs, "gain, ms a step", true),
    ofEach.length <= whatIfs.length ? null : folded("Of every rank", table("What a change would give, by rank", [["rank and change", "text"], "gain ms", "from", "to"],
      ofEach.map(({name, marks: [mark]}) => [[name, "text"], mark.at.toFixed(3), mark.low.toFixed(3), mark.high.toFixed(3)]))),
    settings.length === 0 ? null : element("h3", {}, "Bucket settings (simulated, against the recorded ones; those that cannot be told from the best are shaded)"),
    settings.length === 0 ? null : intervals("settings", "Gain of each bucket setting with its interval", settings, "gain, ms a step", true),
    buckets === null ? null : element("pre", {tabindex: "0"}, buckets.advice.join("\n")),
    ...diagnosis.not_known.map((line) => element("p", {class: "faint"}, `Not known: ${line}`))]);
}

function exploreSection(explore) {
  const best = explore.best.step_us / explore.best.micro_steps;
  const rows = explore.rows.map((row) => [[row.policy, "text code"], row.buckets, ms(row.step_us), ms(row.exposed_us),
    percent(row.step_us / row.micro_steps / best - 1), [row.in_words, "text"]]);
  return section("policies", "Every policy that was tried", [
    element("p", {}, kindOf("simulated"), ` ${counted(explore.rows.length, "row")}; those with several micro-steps are compared by the time of one.`),
    folded("Show the table", table("Policies", [["policy", "text"], "buckets", "step ms", "exposed ms", "against best", ["in the words of", "text"]], rows)),
    ...explore.left_out.map((line) => element("p", {class: "faint"}, `Left out: ${line}`))]);
}

const jobWords = {dp: "--stall", tp: "--stall-2", cp: "--stall-3", ep: "--stall-4", pp: "--copies", other: "--kernel"};

// What waits without a pipeline is no bubble.
const partsOf = (stage, stages) => [["--forward", "compute", stage.compute_us],
  ...Object.entries(stage.exposed_us).map(([what, us]) => [jobWords[what], `exposed ${what}`, us]), stages.length > 1 ? ["--bubble", "bubble", stage.bubble_us] : ["--gap", "waiting", stage.bubble_us]].filter((part) => part[2] > 0);

// A bar for each stage of a plan.
function stagesSection(stages) {
  const cut = stages.rows.map((stage) => ({name: `stage ${stage.stage}`, parts: partsOf(stage, stages.rows)}));
  const bars = emphasize(cut, ["waiting"]);
  return section("stages", bars.length > 1 ? "Where the step goes, by stage" : "Where the step goes", [
    element("p", {}, kindOf(stages.origin), ` Compute, communication that nothing hides by what it is for, and the rest${bars.length > 1 ? " (bubble: nothing to compute, or another stage is late)" : ""}; the parts add up to the step.`),
    partsLegend(bars), stackedBars("stages", "Where a step of each stage goes.", bars), folded("The same as a table", partsTable("Where the time goes", bars))]);
}

// A bar for each job, of its stage with the least bubble, and the figures in a table; then the stages of the best.
function jobsSection(jobs) {
  const gib = (count) => (count / 2 ** 30).toFixed(1);
  const busiest = (row) => row.stages.reduce((least, stage) => (stage.bubble_us < least.bubble_us ? stage : least));
  const verdict = (row, index) => (row.room === "no" ? "does not fit" : [index === jobs.best ? "best" : row.alike ? "alike" : "",
    row.said_by === null ? "nobody says it" : "", row.room === "may" ? "may fit" : ""].filter((word) => word).join(", "));
  const bars = jobs.rows.map((row) => ({name: row.change, parts: partsOf(busiest(row), row.stages)}));
  const stages = jobs.best === null ? [] : jobs.rows[jobs.best].stages;
  return section("jobs", "Every job that was tried", [
    element("p", {}, kindOf(jobs.origin), " Each bar is the stage with the least bubble; the parts add up to the step. MFU counts three times the forward pass, attention whole (PaLM). Alike: too close to the best for public measurements to bear out the order."),
    table("Jobs", [["job", "text"], "step ms", "tokens/s/GPU", "MFU", "peak GiB", ["", "text"]], jobs.rows.map((row, index) => [[row.change, "text"], ms(row.step_us),
      Math.round(row.tokens_per_s_per_gpu), row.mfu === null ? "" : share(row.mfu), gib(row.peak_bytes), [verdict(row, index), "text"]])),
    partsLegend(bars), stackedBars("jobs", "Where a step of each job goes; the same numbers stand in the tables.", bars),
    folded("The same as a table", partsTable("Where the time goes", bars)),
    stages.length < 2 ? null : element("h3", {}, `Stages of ${jobs.rows[jobs.best].change}`),
    stages.length < 2 ? null : stackedBars("stages", "Where a step of each stage goes.", stages.map((stage) => ({name: `stage ${stage.stage}, ${gib(stage.memory_bytes)} GiB`, parts: partsOf(stage, stages)}))),
    ...jobs.left_out.map((line) => element("p", {class: "faint"}, `Left out: ${line}`))]);
}

function sensitivitySection(report) {
  if (report.sensitivity.length === 0 || !report.found) return null;
  const beside = (row) => (row.usual_us === null ? ["", ""] : [ms(row.usual_us), percent(row.usual_us / row.plan_us - 1, 2)]);
  const rows = report.sensitivity.map((row) => [row.cost, `x ${row.factor}`, ms(row.plan_us), percent(row.plan_us / report.found.step_us - 1, 2), ms(row.best_us),
    percent(row.plan_us / row.best_us - 1, 2), ...(report.usual ? beside(row) : [])]);
  return section("sensitivity", "If a cost is 20 % off", [
    element("p", {}, kindOf("simulated"), " The same plan where one cost takes 0.8 or 1.2 times its time, beside a plan that is made for these costs."),
    legend([["var(--predicted)", "0.8 times the time"], ["var(--measured)", "1.2 times the time"]]), sensitivityChart(report),
    table("Sensitivity", ["cost", "time", "our plan ms", "change", "a plan made for it ms", "our plan loses", ...(report.usual ? [`${report.usual} ms`, "over our plan"] : [])], rows)]);
}

function assumptionSection(report) {
  if (report.assumptions.length === 0) return null;
  const error = (entry) => (entry.error_percent === null ? "not known; see the sensitivity" : `${entry.error_percent.toFixed(2)} %${entry.error_of ? `: ${entry.error_of}` : ""}`);
  return section("assumptions", "What is assumed, and how far it can be off", [
    table("Assumptions", [["assumption", "text"], ["error", "text"]], report.assumptions.map((entry) => [[entry.text, "text"], [error(entry), "text"]]))]);
}

function pasteSection(report) {
  if (report.paste.length === 0 && report.next.length === 0) return null;
  const block = (text) => element("pre", {tabindex: "0"}, text);
  return section("paste", "To use it", [...report.next.map(block), ...report.paste.map((paste) => element("div", {class: "paste"},
    element("h3", {}, paste.framework), element("p", {}, kindOf("simulated"), ` ${time(paste.step_us)} a step as it is run there`),
    ...paste.given_up.map((loss) => element("p", {class: "faint"}, `Given up: ${loss}`)), folded("Show the file", block(paste.text)), block(paste.use)))]);
}

function resultSections(report) {
  const makers = {explore: exploreSection, comparison: comparisonSection, run: runSection, diagnosis: diagnosisSection, jobs: jobsSection, stages: stagesSection};
  return report.results.map((result) => makers[result.kind]?.(result) ?? null);
}

function showReport(report) {
  headOf(report);
  const [policies, others] = [report.results.filter((result) => result.kind === "explore"), report.results.filter((result) => result.kind !== "explore")];
  // The answer first: what is slow, our plan, what was measured.
  const sections = [...resultSections({results: others.filter((result) => result.kind === "diagnosis")}), foundSection(report),
    ...resultSections({results: others.filter((result) => result.kind !== "diagnosis")}), curveSection(report), prefetchSection(report), timelineSection(report), causesSection(report),
    sensitivitySection(report), assumptionSection(report), pasteSection(report), ...resultSections({results: policies})].filter((part) => part !== null);
  const ids = new Map();
  for (const part of sections) {  // two results of one kind
    const count = (ids.get(part.id) ?? 0) + 1;
    ids.set(part.id, count);
    if (count > 1) part.id += `-${count}`;
    part.node.id = part.id;
  }
  document.getElementById("contents").append(element("ul", {}, sections.map((part) => element("li", {}, element("a", {href: `#${part.id}`}, part.title)))));
  document.getElementById("figures-begin").append(...sections.map((part) => part.node));
  document.getElementById("foot").append(element("p", {class: "faint"}, "This file stands alone: it loads nothing. The figures stand in it as JSON ",
    "(schema dovetail.report/1). Charts are drawn with D3 (ISC licence, in the file)."));
}

showReport(JSON.parse(document.getElementById("report").textContent));
