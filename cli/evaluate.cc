// A line is read strictly, the planner of its workload on its machine is found or made, and what it says of the policy is
// written in one line. Buckets that somebody names are a Schedule like a policy's: looked at by the same rules before they are priced, and a plan of them is verified.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "cli/document.h"
#include "cli/job_flag.h"
#include "frameworks/framework.h"
#include "jobs/text.h"
#include "policies/named_groups.h"
#include "predict/inputs.h"
#include "predict/job_prediction.h"
#include "predict/prediction.h"
#include "predict/step_range.h"
#include "schedule/plan_json.h"
#include "schedule/resident.h"
#include "search/planner.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;

// What is wanted of a line.
enum class Wanted { Step, Gradients, Plan };
constexpr auto words_of(Wanted) { return words("step", "gradients", "plan"); }

ordered_json interval_json(const std::optional<predict::StepRange>& range) {
  if (!range) return nullptr;
  return {
      {"p5_us", to_us(range->p5)}, {"p50_us", to_us(range->p50)}, {"p95_us", to_us(range->p95)}};
}

ordered_json memory_json(Bytes held, const std::optional<Bytes>& capacity) {
  return {{"held_bytes", held.count()},
          {"device_bytes", capacity ? ordered_json(capacity->count()) : ordered_json(nullptr)},
          {"fits", !capacity || held <= *capacity}};
}

// What a line is called by who asks: text or a number.
std::string id_of(const JsonValue& value) {
  return value.is_string() ? ordered_json(value.string()).dump() : std::to_string(value.integer());
}

schedule::NamedGroups groups_in(const JsonArray& array) {
  schedule::NamedGroups groups;
  for (const JsonValue group : array) {
    std::vector<std::string> names;
    for (const JsonValue name : group.array()) names.push_back(name.string());
    if (names.empty()) group.fail("expected at least one gradient");
    groups.push_back(std::move(names));
  }
  return groups;
}

}  // namespace

struct Evaluator::Question {
  explicit Question(std::string_view line) : file("line", line) {
    JsonObject root = file.root();
    if (root.has("id")) id = id_of(root.at("id"));
    workload = root.string_or("workload", "");
    job = root.string_or("job", "");
    cluster = root.string_or("cluster", "");
    if (root.has("world")) world = root.integer("world", 1, INT32_MAX);
    layout = root.string_or("layout", "");
    what_if = root.string_or("what_if", "");
    force = root.has("force") && root.at("force").boolean();
    framework = root.string_or("for", "torch");
    policy = root.string_or("policy", "");
    if (root.has("groups")) groups = groups_in(root.array("groups"));
    notes = root.has("notes") && root.at("notes").boolean();
    if (root.has("want")) wanted = root.one_of<Wanted>("want");
    root.done();
    if (workload.empty() == job.empty()) {
      throw InputError(job.empty() ? "line: name a workload or a job"
                                   : "line: name a workload or a job, not both");
    }
  }

  [[nodiscard]] schedule::Policy parsed_policy() const {
    return frameworks::parse_policy(!policy.empty() ? policy : groups ? "per-tensor" : "exact");
  }
  // What is asked at a Desk.
  [[nodiscard]] std::string asks() const {
    std::string text =
        policy + '\n' + framework + '\n' + std::string(to_string(wanted)) + (notes ? "n" : "");
    if (!groups) return text;
    for (const std::vector<std::string>& group : *groups) {
      text += '\n';
      for (const std::string& name : group) text += name + '\t';
    }
    return text;
  }
  // All that a Desk is made of.
  [[nodiscard]] std::string key() const {
    const schedule::StageSplit split =
        job.empty() ? schedule::split_of(parsed_policy()) : schedule::StageSplit{};
    std::string key = (job.empty() ? "w " + workload : "j " + job);
    for (const std::string& part :
         {cluster, world ? std::to_string(*world) : "", layout, what_if,
          std::string(force ? "f" : ""), std::to_string(split.stages), std::to_string(split.chunks),
          std::to_string(static_cast<int>(split.map))}) {
      key += '\n' + part;
    }
    return key;
  }

  JsonFile file;
  std::string id;  // as JSON; "": none
  std::string workload, job, cluster, layout, what_if, framework, policy;
  std::optional<std::int64_t> world;
  std::optional<schedule::NamedGroups> groups;
  bool force = false;
  bool notes = false;
  Wanted wanted = Wanted::Step;
};

// A workload on a machine, or a job, with what was found of it.
struct Evaluator::Desk {
  std::mutex mutex;
  std::optional<predict::Inputs> inputs;  // its program has gone to the planner
  std::optional<search::Planner> planner;
  std::optional<schedule::OwedByName> owed;
  frameworks::Gradients gradients;              // what words depend on
  const predict::PublicError* error = nullptr;  // of steps of this workload here; null: unknown
  std::map<std::string, schedule::Schedule> frames;  // Schedules of policies without their buckets
  std::unordered_map<std::string, std::string> answers;  // by Question::asks

  const schedule::Schedule& frame_of(const schedule::Policy& policy) {
    const std::string name = schedule::to_string(policy);
    const auto known = frames.find(name);
    if (known != frames.end()) return known->second;
    schedule::Schedule frame = schedule::make_schedule(planner->program(), policy);
    frame.buckets.clear();
    return frames.emplace(name, std::move(frame)).first->second;
  }

  void take_workload(const Question& question, const std::string& data_dir) {
    predict::InputOptions options{.workload = question.workload,
                                  .cluster = question.cluster,
                                  .data_dir = data_dir,
                                  .world = question.world,
                                  .force = question.force};
    if (!question.layout.empty()) options.layout = predict::parse_layout(question.layout);
    if (!question.what_if.empty()) options.what_if = models::parse_what_if(question.what_if);
    options.split = schedule::split_of(question.parsed_policy());
    inputs = predict::load_inputs(options);
    planner.emplace(std::move(inputs->program), inputs->machine.costs);
    const schedule::Program& program = planner->program();
    owed.emplace(program);
    gradients = {.element = schedule::element_size(owed->all.front().dtype),
                 .ranks = program.group(owed->all.front().group).size()};
    if (inputs->machine.cluster) error = predict::public_error(*inputs->machine.cluster, program);
  }

  // A planner remembers every Schedule that it weighed: after so many it begins anew, lest memory grow without end.
  void forget() {
    constexpr std::size_t kMost = 20'000;
    if (answers.size() > kMost) answers.clear();
    if (!planner || planner->simulated() <= kMost) return;
    search::Planner fresh(planner->program(), planner->costs());
    planner.emplace(std::move(fresh));
  }
};

namespace {

ordered_json job_json(const jobs::Job& asked, const models::Cluster& cluster,
                      const models::WhatIf& what_if) {
  const predict::JobPrediction found =
      predict::predict_job(predict::on_world(asked, what_if), cluster);
  ordered_json interval = nullptr;
  if (found.error != nullptr)
    interval = interval_json(predict::step_range(*found.error, found.step));
  return {{"origin", "simulated"},
          {"job", jobs::to_string(found.job)},
          {"policy", found.policy},
          {"step_us", to_us(found.step)},
          {"interval", std::move(interval)},
          {"tokens_per_s_per_gpu", found.figures.tokens_per_s_per_gpu},
          {"mfu", found.figures.mfu ? ordered_json(*found.figures.mfu) : ordered_json(nullptr)},
          {"memory", memory_json(found.peak(), found.capacity)}};
}

ordered_json gradients_json(const search::Planner& planner, const schedule::OwedByName& owed) {
  const std::vector<Duration> ready = planner.ready_alone();
  ordered_json rows = ordered_json::array();
  std::map<schedule::BucketKey, std::size_t> kinds;
  for (std::size_t i = 0; i < owed.all.size(); ++i) {
    const std::size_t kind = kinds.emplace(owed.kinds[i], kinds.size()).first->second;
    rows.push_back({{"name", planner.program().tensor(owed.all[i].tensor).name},
                    {"bytes", owed.all[i].bytes.count()},
                    {"elements", owed.all[i].numel},
                    {"ready_us", to_us(ready[i])},
                    {"kind", kind}});
  }
  return rows;
}

// The plan file of the candidate, as plan writes it.
std::string plan_text(const search::Planner& planner, const predict::Inputs& inputs,
                      const search::Candidate& candidate, std::optional<Duration> bound) {
  schedule::Plan plan{
      .program = planner.program(), .schedule = candidate.schedule, .summary = inputs.summary};
  plan.summary.predicted = schedule::Prediction{.step = Duration(candidate.summary.step_ns),
                                                .exposed = Duration(candidate.summary.exposed_ns),
                                                .lower_bound = bound};
  return with_tool(schedule::plan_to_json(plan));
}

// What the framework makes of the candidate, told how; the candidate as it stands where it has no words for it.
struct There {
  bool is_changed = false;
  std::optional<frameworks::Said> said;
};
There run_there(search::Planner& planner, const frameworks::Framework& framework,
                const frameworks::Gradients& gradients, search::Candidate& candidate) {
  There there;
  if (candidate.plan) return there;
  there.said = framework.says(candidate.spec, gradients);
  if (!there.said) return there;
  try {
    schedule::Schedule schedule =
        frameworks::as_run(framework, planner.program(), candidate.schedule);
    there.is_changed = schedule != candidate.schedule;
    if (!there.is_changed) return there;
    candidate.summary = planner.evaluate(schedule);
    candidate.bounded = planner.is_bounded(schedule);
    candidate.schedule = std::move(schedule);
  } catch (const InputError&) {  // it cannot run this program at all
    there.said.reset();
  }
  return there;
}

}  // namespace

Evaluator::Evaluator(std::string data_dir) : data_dir_(std::move(data_dir)) {}
Evaluator::~Evaluator() = default;

std::shared_ptr<Evaluator::Desk> Evaluator::desk_of(const Question& question) {
  const std::string key = question.key();
  const std::lock_guard lock(mutex_);
  for (auto at = desks_.begin(); at != desks_.end(); ++at) {
    if (at->first != key) continue;
    desks_.splice(desks_.begin(), desks_, at);
    return at->second;
  }
  desks_.emplace_front(key, std::make_shared<Desk>());
  if (desks_.size() > kKept) desks_.pop_back();
  return desks_.front().second;
}

std::string Evaluator::answer_about(const Question& question) {
  const std::shared_ptr<Desk> desk = desk_of(question);
  const std::lock_guard lock(desk->mutex);
  const auto known = desk->answers.find(question.asks());
  if (known != desk->answers.end()) return known->second;
  desk->forget();
  std::string text = question.job.empty() ? answer_of(*desk, question) : answer_of_job(question);
  desk->answers.emplace(question.asks(), text);
  return text;
}

std::string Evaluator::answer_of_job(const Question& question) const {
  const bool asks_more = question.groups || !question.policy.empty() || question.world ||
                         !question.layout.empty() || question.wanted != Wanted::Step ||
                         question.notes;
  if (asks_more) throw InputError("line: of a job only cluster, what_if and id are heeded");
  if (question.cluster.empty()) throw InputError("line: a job needs a cluster");
  const models::WhatIf what_if =
      question.what_if.empty() ? models::WhatIf{} : models::parse_what_if(question.what_if);
  return job_json(job_of(question.job), predict::load_cluster(question.cluster, data_dir_, what_if),
                  what_if)
      .dump();
}

std::string Evaluator::answer_of(Desk& desk, const Question& question) const {
  if (!desk.planner) desk.take_workload(question, data_dir_);
  search::Planner& planner = *desk.planner;
  if (question.wanted == Wanted::Gradients) {
    return ordered_json{{"gradients", gradients_json(planner, *desk.owed)}}.dump();
  }
  const schedule::Policy policy = question.parsed_policy();
  search::Start start = policy;
  if (question.groups) {
    const schedule::Decisions& decided = policy.decisions;
    if (decided.stages || decided.sharding || decided.gathers || schedule::needs_costs(policy)) {
      throw InputError(
          "groups: go with a policy that all-reduces and searches nothing, such as "
          "per-tensor:mode=copy, not " +
          schedule::to_string(policy));
    }
    start = search::NamedSchedule{
        "own", schedule::schedule_of(planner.program(), *desk.owed, *question.groups, policy,
                                     desk.frame_of(policy))};
  }
  const frameworks::Framework& framework =
      frameworks::parse_framework("for", question.framework, frameworks::has_rows);
  search::Candidate candidate = planner.evaluate(start);
  if (question
          .groups) {  // whole gradients, each in one bucket, reduced once: illegal only if one comes too late
    const std::optional<std::string> late =
        schedule::late_for_a_reader(planner.program(), candidate.schedule);
    if (late) throw InputError("groups: " + *late);
  }
  const auto bound_of = [&planner](const search::Candidate& found) {
    return found.bounded ? planner.lower_bound(found).time : std::nullopt;
  };
  if (question.wanted == Wanted::Plan) {
    static_cast<void>(planner.verified(candidate.schedule));
    return ordered_json{{"plan", plan_text(planner, *desk.inputs, candidate, bound_of(candidate))}}
        .dump();
  }
  const There there = run_there(planner, framework, desk.gradients, candidate);
  const sim::StepSummary& summary = candidate.summary;
  const Duration step(summary.step_ns);
  const std::optional<models::Cluster>& cluster = desk.inputs->machine.cluster;
  const std::optional<Duration> bound = bound_of(candidate);
  ordered_json answer = {
      {"origin", "simulated"},
      {"policy",
       candidate.plan ? ordered_json(nullptr) : ordered_json(schedule::to_string(candidate.spec))},
      {"step_us", to_us(step)},
      {"interval", interval_json(desk.error == nullptr
                                     ? std::nullopt
                                     : std::optional(predict::step_range(*desk.error, step)))},
      {"exposed_us", to_us(Duration(summary.exposed_ns))},
      {"communication_us", to_us(Duration(summary.communication_ns))},
      {"compute_us", to_us(Duration(summary.compute_ns))},
      {"micro_steps", candidate.schedule.merge.micro_steps},
      {"buckets", candidate.buckets()},
      {"lower_bound_us", bound ? ordered_json(to_us(*bound)) : ordered_json(nullptr)},
      {"gap_percent", bound && bound->count() > 0
                          ? ordered_json(100 * (to_us(step) / to_us(*bound) - 1))
                          : ordered_json(nullptr)},
      {"memory",
       memory_json(schedule::resident(planner.program(), candidate.schedule).total(),
                   cluster && cluster->compute ? cluster->compute->capacity : std::nullopt)},
      {"as_run", there.is_changed},
      {"in_words", there.said       ? there.said->words
                   : candidate.plan ? std::string(frameworks::kOwnHooks)
                                    : frameworks::in_words(candidate.spec)},
      {"paste", there.said && there.said->by == frameworks::ToldBy::Setting
                    ? ordered_json(there.said->paste)
                    : ordered_json(nullptr)}};
  if (question.notes) {
    answer["notes"] = predict::notes_on(desk.inputs->machine, planner.program(),
                                        desk.inputs->summary, candidate.schedule);
  }
  return answer.dump();
}

std::string Evaluator::answer(std::string_view line) {
  std::string id;
  std::string text;
  try {
    const Question question(line);
    id = question.id;
    text = answer_about(question);
  } catch (const InputError& error) {
    const ordered_json refused = {{"error", error.what()}};
    text = refused.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }
  return id.empty() ? text : "{\"id\":" + id + "," + text.substr(1);
}

void evaluate(const EvaluateOptions& options, std::istream& in, std::ostream& out) {
  Evaluator evaluator(options.data_dir);
  std::string line;
  while (std::getline(in, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    out << evaluator.answer(line) << '\n';
    if (in.rdbuf()->in_avail() <= 0) out.flush();
  }
}

}  // namespace dovetail::cli
