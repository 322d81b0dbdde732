// A line is read strictly, the planner of its workload on its machine is found or made, and what it says of the policy is
// written in one line. Buckets that somebody names are a Schedule like a policy's: looked at by the same rules before they are priced, and a plan of them is verified.
// A line with a mistake is read again as a whole, so that the mistake is told of the line as it stands.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "answers/prediction.h"
#include "answers/step_range.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "cli/document.h"
#include "cli/fault.h"
#include "cli/job_flag.h"
#include "cli/plain_groups.h"
#include "cli/signals.h"
#include "frameworks/framework.h"
#include "models/networks/memory.h"
#include "models/networks/text.h"
#include "schedule/plan_json.h"
#include "schedule/policies/named_groups.h"
#include "schedule/resident.h"
#include "search/planner.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;
using std::string_literals::operator""s;

// What is wanted of a line.
enum class Wanted { Step, Gradients, Plan };
constexpr auto words_of(Wanted) { return words("step", "gradients", "plan"); }

// An object on one line, written member by member: making a tree of values first takes as long as a prediction.
class Members {
 public:
  // `json`: how the value is written.
  Members& add(std::string_view key, std::string_view json) {
    ((((text_ += text_.empty() ? "{\"" : ",\"") += key) += "\":") += json);
    return *this;
  }
  // Gives the text away.
  [[nodiscard]] std::string end() { return std::move(text_ += '}'); }

 private:
  std::string text_;
};

constexpr const char* kNull = "null";

std::string json_of(double number) {
  if (!std::isfinite(number)) return kNull;
  std::array<char, 64> digits{};
  return {digits.data(),
          nlohmann::detail::to_chars(digits.data(), digits.data() + digits.size(), number)};
}
std::string json_of(Duration time) { return json_of(to_us(time)); }
std::string json_of(Bytes bytes) { return std::to_string(bytes.count()); }
std::string json_of(bool is_so) { return is_so ? "true" : "false"; }
std::string json_of(const std::string& text) { return ordered_json(text).dump(); }
template <class T>
std::string json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : kNull;
}

std::string json_of(const predict::StepRange& range) {
  return Members()
      .add("p5_us", json_of(range.p5))
      .add("p50_us", json_of(range.p50))
      .add("p95_us", json_of(range.p95))
      .end();
}

std::string memory_json(Bytes held, const std::optional<Bytes>& capacity) {
  return Members()
      .add("held_bytes", json_of(held))
      .add("device_bytes", json_of(capacity))
      .add("fits", json_of(!capacity || held <= *capacity))
      .end();
}

// Where public steps like it lay; null where that is not known.
std::string interval_json(const predict::PublicError* error, Duration step) {
  return error == nullptr ? kNull : json_of(predict::step_range(*error, step));
}

// What a line is called by who asks: text or a number.
std::string id_of(const JsonValue& value) {
  return value.is_string() ? ordered_json(value.string()).dump() : std::to_string(value.integer());
}

// `names` keeps what the groups look at.
schedule::NamedGroups groups_in(const JsonArray& array, std::deque<std::string>& names) {
  schedule::NamedGroups groups;
  for (const JsonValue group : array) {
    std::vector<std::string_view>& members = groups.emplace_back();
    for (const JsonValue name : group.array()) members.push_back(names.emplace_back(name.string()));
    if (members.empty()) group.fail("expected at least one gradient");
  }
  return groups;
}

}  // namespace

struct Evaluator::Question {
  // It looks at the line.
  static Question of(std::string_view line) {
    if (std::optional<PlainGroups> plain = plain_groups_in(line)) {
      try {
        Question question(plain->rest);
        question.groups = std::move(plain->groups);
        return question;
      } catch (const InputError&) {  // it is told of the whole line
      }
    }
    return Question(line);
  }

  explicit Question(std::string_view line) {
    const JsonFile file("line", line);
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
    if (root.has("groups")) groups = groups_in(root.array("groups"), names);
    notes = root.has("notes") && root.at("notes").boolean();
    if (root.has("want")) wanted = root.one_of<Wanted>("want");
    root.done();
    if (workload.empty() == job.empty()) {
      throw InputError(job.empty() ? "line: name a workload or a job"
                                   : "line: name a workload or a job, not both");
    }
    if (!job.empty() && (world || !layout.empty())) {
      throw InputError("line: a job says its ranks and its layout itself");
    }
  }

  // Of a job: the one given, or that which places the groups, with what the job decides besides.
  [[nodiscard]] schedule::Policy policy_for(const std::optional<jobs::Job>& planned) const {
    const std::string given = policy.empty() && groups ? "per-tensor" : policy;
    if (planned) return frameworks::parse_policy(policy_of_job(*planned, given));
    return frameworks::parse_policy(given.empty() ? "exact" : given);
  }
  // Whether more is asked of a job than what it does by itself.
  [[nodiscard]] bool is_of_schedules() const {
    return job.empty() || groups || !policy.empty() || wanted != Wanted::Step || notes;
  }
  // What is asked at a Desk.
  [[nodiscard]] std::string asks() const {
    std::string text =
        policy + '\n' + framework + '\n' + std::string(to_string(wanted)) + (notes ? "n" : "");
    if (!groups) return text;
    for (const std::vector<std::string_view>& group : *groups) {
      text += '\n';
      for (const std::string_view name : group) {
        text += name;
        text += '\t';
      }
    }
    return text;
  }
  // All that a Desk is made of.
  [[nodiscard]] std::string key() const {
    const schedule::StageSplit split =
        job.empty() ? schedule::split_of(policy_for({})) : schedule::StageSplit{};
    std::string key = (job.empty() ? "w " + workload : "j " + job);
    for (const std::string& part :
         {cluster, world ? std::to_string(*world) : "", layout, what_if,
          std::string(force ? "f" : ""), std::to_string(split.stages), std::to_string(split.chunks),
          std::to_string(static_cast<int>(split.map))}) {
      key += '\n' + part;
    }
    return key;
  }

  std::string id;  // as JSON; "": none
  std::string workload, job, cluster, layout, what_if, framework, policy;
  std::optional<std::int64_t> world;
  std::optional<schedule::NamedGroups> groups;
  std::deque<std::string> names;  // of groups that are not plain
  bool force = false;
  bool notes = false;
  Wanted wanted = Wanted::Step;
};

// A workload on a machine, or a job, with what was found of it.
struct Evaluator::Desk {
  std::mutex mutex;
  std::optional<predict::Inputs> inputs;  // its program has gone to the planner
  std::optional<jobs::Job> job;           // in place of a workload
  std::optional<search::Planner> planner;
  std::optional<schedule::OwedByName> owed;
  std::optional<schedule::ResidentTensors> resident;  // of the planner's program
  frameworks::Gradients gradients;                    // what words depend on
  const predict::PublicError* error = nullptr;  // of steps of this workload here; null: unknown
  bool is_made = false;                         // by `take`, to its end
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

  void take(const Question& question, const std::string& data_dir) {
    predict::InputOptions options{.workload = question.workload,
                                  .cluster = question.cluster,
                                  .data_dir = data_dir,
                                  .world = question.world,
                                  .force = question.force};
    if (!question.layout.empty()) options.layout = predict::parse_layout(question.layout);
    if (!question.what_if.empty()) options.what_if = models::parse_what_if(question.what_if);
    if (!question.job.empty()) {
      take_job(question.job, options);
      job = predict::on_world(*options.job, options.what_if);
    } else {
      options.split = schedule::split_of(question.policy_for({}));
    }
    inputs = predict::load_inputs(options);
    planner.emplace(std::move(inputs->program), inputs->machine.costs);
    const schedule::Program& program = planner->program();
    owed.emplace(program);
    resident.emplace(program);
    gradients = {.element = schedule::element_size(owed->all.front().dtype),
                 .ranks = program.group(owed->all.front().group).size()};
    if (inputs->machine.cluster) error = predict::public_error(*inputs->machine.cluster, program);
    is_made = true;
  }

  // What is asked next finds all of it anew: an exception may have left it half changed.
  void clear() {
    is_made = false;
    planner.reset();
    frames.clear();
    answers.clear();
  }

  // What a rank keeps all step long; of a job its peak.
  [[nodiscard]] Bytes held(const schedule::Schedule& schedule) const {
    if (!job) return resident->of(schedule).total();
    const std::vector<jobs::StageMemory> stages = jobs::memory_of(*job);
    return stages[jobs::fullest(stages)].total();
  }

  // A planner remembers every Schedule that it weighed: after so many it begins anew, lest memory grow without end.
  void forget() {
    constexpr std::size_t kMost = 20'000;
    if (answers.size() > kMost) answers.clear();
    if (!planner || planner->simulated() <= kMost) return;
    search::Planner fresh(planner->program(), planner->costs());
    planner.emplace(std::move(fresh));
    resident.emplace(planner->program());
  }
};

namespace {

std::string job_json(const jobs::Job& asked, const models::Cluster& cluster,
                     const models::WhatIf& what_if) {
  const predict::JobPrediction found =
      predict::predict_job(predict::on_world(asked, what_if), cluster);
  return Members()
      .add("origin", json_of("simulated"s))
      .add("job", json_of(jobs::to_string(found.job)))
      .add("policy", json_of(found.policy))
      .add("step_us", json_of(found.step))
      .add("interval", interval_json(found.error, found.step))
      .add("tokens_per_s_per_gpu", json_of(found.figures.tokens_per_s_per_gpu))
      .add("mfu", json_of(found.figures.mfu))
      .add("memory", memory_json(found.peak(), found.capacity))
      .end();
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

std::string one_line(const ordered_json& answer) {
  return answer.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
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
  std::string asks = question.asks();
  const std::lock_guard lock(desk->mutex);
  const auto known = desk->answers.find(asks);
  if (known != desk->answers.end()) return known->second;
  try {
    desk->forget();
    std::string text =
        question.is_of_schedules() ? answer_of(*desk, question) : answer_of_job(question);
    desk->answers.emplace(std::move(asks), text);
    return text;
  } catch (const InputError&) {
    throw;
  } catch (...) {
    desk->clear();
    throw;
  }
}

std::string Evaluator::answer_of_job(const Question& question) const {
  if (question.cluster.empty()) throw InputError("line: a job needs a cluster");
  const models::WhatIf what_if =
      question.what_if.empty() ? models::WhatIf{} : models::parse_what_if(question.what_if);
  return job_json(job_of(question.job), predict::load_cluster(question.cluster, data_dir_, what_if),
                  what_if);
}

std::string Evaluator::answer_of(Desk& desk, const Question& question) const {
  if (!desk.is_made) desk.take(question, data_dir_);
  search::Planner& planner = *desk.planner;
  if (question.wanted == Wanted::Gradients) {
    return ordered_json{{"gradients", gradients_json(planner, *desk.owed)}}.dump();
  }
  const schedule::Policy policy = question.policy_for(desk.job);
  search::Start start = policy;
  if (question.groups) {
    if (desk.job && (desk.job->zero != jobs::Zero::Nothing || desk.job->layout.pp > 1)) {
      throw InputError("groups: are of a job without stages that all-reduces: pp=1, zero=0");
    }
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
    const std::optional<std::string> late = schedule::late_for_a_reader(
        planner.program(), desk.owed->all, desk.owed->readers, candidate.schedule);
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
  std::optional<std::string> policy_name;
  if (!candidate.plan) policy_name = schedule::to_string(candidate.spec);
  std::optional<double> gap;
  if (bound && bound->count() > 0) gap = 100 * (to_us(step) / to_us(*bound) - 1);
  std::optional<std::string> paste;
  if (there.said && there.said->by == frameworks::ToldBy::Setting) paste = there.said->paste;
  const std::string words = there.said       ? there.said->words
                            : candidate.plan ? std::string(frameworks::kOwnHooks)
                                             : frameworks::in_words(candidate.spec);
  Members answer;
  answer.add("origin", json_of("simulated"s))
      .add("policy", json_of(policy_name))
      .add("step_us", json_of(step))
      .add("interval", interval_json(desk.error, step))
      .add("exposed_us", json_of(Duration(summary.exposed_ns)))
      .add("communication_us", json_of(Duration(summary.communication_ns)))
      .add("compute_us", json_of(Duration(summary.compute_ns)))
      .add("micro_steps", std::to_string(candidate.schedule.merge.micro_steps))
      .add("buckets", std::to_string(candidate.buckets()))
      .add("lower_bound_us", json_of(bound))
      .add("gap_percent", json_of(gap))
      .add("memory",
           memory_json(desk.held(candidate.schedule),
                       cluster && cluster->compute ? cluster->compute->capacity : std::nullopt))
      .add("as_run", json_of(there.is_changed))
      .add("in_words", json_of(words))
      .add("paste", json_of(paste));
  if (question.notes) {
    answer.add("notes", ordered_json(predict::notes_on(desk.inputs->machine, planner.program(),
                                                       desk.inputs->summary, candidate.schedule))
                            .dump());
  }
  return answer.end();
}

std::string Evaluator::answer(std::string_view line) {
  std::string id;
  std::string text;
  try {
    const Question question = Question::of(line);
    id = question.id;
    text = answer_about(question);
  } catch (const InputError& error) {
    text = one_line({{"error", error.what()}});
  } catch (const std::exception& error) {  // a CheckError, or no memory
    text = one_line({{"error", std::string(error.what()) + "; " + kFault + " this line"},
                     {"internal", true},
                     {"line", line}});
  }
  return id.empty() ? text : "{\"id\":" + id + "," + text.substr(1);
}

void evaluate(const EvaluateOptions& options, std::istream& in, std::ostream& out) {
  Evaluator evaluator(options.data_dir);
  std::optional<AsksBeforeEnding> keep_what_is_answered;
  std::string line;
  while (true) {
    if (in.rdbuf()->in_avail() <= 0) {
      out.flush();
      keep_what_is_answered.reset();  // nothing is lost where a signal ends the wait for a line
    }
    if (!std::getline(in, line)) return;
    if (!keep_what_is_answered) keep_what_is_answered.emplace(Asks::Anywhere);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    out << evaluator.answer(line) << '\n';
    if (AsksBeforeEnding::is_asked()) throw Interrupted();
  }
}

}  // namespace dovetail::cli
