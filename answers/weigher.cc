// A site reads its subject and its machine when it is made, and lowers nothing before schedules are asked about: a job as it is
// needs no planner. Buckets that somebody names are a Schedule like a policy's, looked at by the same rules before they are priced.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/weigher.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "answers/job_prediction.h"
#include "answers/room.h"
#include "base/attempt.h"
#include "base/error.h"
#include "frameworks/export.h"
#include "frameworks/jobs/job_source.h"
#include "models/networks/decisions.h"
#include "models/networks/memory.h"
#include "models/networks/program.h"
#include "models/networks/text.h"
#include "schedule/policies/policies.h"
#include "search/recorded.h"

namespace dovetail::answers {

std::string site_key(const Question& question) {
  std::string key = (question.job.empty() ? "w " + question.workload : "j " + question.job);
  (key += '\n') += question.cluster;
  if (question.world) (key += '\n') += std::to_string(*question.world);
  if (question.layout) (key += '\n') += to_string(*question.layout);
  if (!question.what_if.nothing()) (key += '\n') += to_string(question.what_if);
  if (question.force) key += "\nforced";
  if (!question.plan.empty()) key += "\nplan " + question.plan;
  if (question.job.empty() && !question.policy.empty()) {
    const schedule::StageSplit split =
        schedule::split_of(frameworks::parse_policy(question.policy));
    if (split.stages > 1) {
      key += "\nstages " + std::to_string(split.stages) + ' ' + std::to_string(split.chunks) + ' ' +
             std::to_string(static_cast<int>(split.map));
    }
  }
  return key;
}

namespace {

predict::InputOptions options_of(const Question& question, const std::string& data_dir) {
  return {.workload = question.job.empty() ? question.workload : question.job,
          .cluster = question.cluster,
          .data_dir = data_dir,
          .world = question.world,
          .layout = question.layout,
          .force = question.force,
          .what_if = question.what_if};
}

}  // namespace

Site::Site(const Question& question, const std::string& data_dir)
    : options_(options_of(question, data_dir)) {
  if (question.job.empty()) {
    options_.split = question.plan.empty()
                         ? schedule::split_of(policy_for(question))
                         : schedule::split_of(schedule::read_plan(question.plan).program);
    make_planner();
    return;
  }
  options_.job = frameworks::load_job(question.job);
  job_ = predict::on_world(*options_.job, options_.what_if);
  cluster_ = predict::load_cluster(options_.cluster, data_dir, options_.what_if);
}

void Site::make_planner() {
  inputs_ = predict::load_inputs(options_);
  planner_.emplace(std::move(inputs_->program), inputs_->machine.costs);
  const schedule::Program& program = planner_->program();
  owed_.emplace(program);
  resident_.emplace(program);
  gradients_ = {.element = schedule::element_size(owed_->all.front().dtype),
                .ranks = program.group(owed_->all.front().group).size()};
  if (inputs_->recorded) {
    const auto run = search::recorded_run(program, *inputs_->recorded);
    if (run) now_ = Duration(planner_->evaluate(run->schedule).step_ns);
  }
  host_bound_ = predict::host_bound_phases(program, planner_->costs());
  if (inputs_->machine.cluster) error_ = predict::public_error(*inputs_->machine.cluster, program);
}

const predict::Inputs& Site::inputs() {
  static_cast<void>(planner());
  return *inputs_;
}

search::Planner& Site::planner() {
  if (!planner_) make_planner();
  return *planner_;
}

// A planner remembers every Schedule that it weighed: after so many it begins anew, lest memory grow without end.
void Site::forget() {
  constexpr std::size_t kMost = 20'000;
  if (planner().simulated() <= kMost) return;
  search::Planner fresh(planner_->program(), planner_->costs());
  planner_.emplace(std::move(fresh));
  resident_.emplace(planner_->program());
}

schedule::Policy Site::policy_for(const Question& question) const {
  const std::string given =
      question.policy.empty() && question.groups ? "per-tensor" : question.policy;
  if (job_) {
    return given.empty() ? jobs::policy_of(*job_)
                         : jobs::policy_of(*job_, given, frameworks::presets());
  }
  const bool is_divided = question.layout && question.layout->dp_shard > 1;
  return frameworks::parse_policy(given.empty() ? (is_divided ? "fsdp" : "exact") : given);
}

const schedule::Schedule& Site::frame_of(const schedule::Policy& policy) {
  const std::string name = schedule::to_string(policy);
  const auto known = frames_.find(name);
  if (known != frames_.end()) return known->second;
  schedule::Schedule frame = schedule::make_schedule(planner_->program(), policy);
  frame.buckets.clear();
  return frames_.emplace(name, std::move(frame)).first->second;
}

const schedule::OwedByName& Site::travelling_with(const schedule::Policy& policy) {
  const std::string name = schedule::to_string(policy);
  const auto known = travelling_.find(name);
  if (known != travelling_.end()) return known->second;
  schedule::Policy whole = policy;  // no tensor is cut
  if (schedule::bucket_size(policy)) whole = with_bucket_size(whole, Bytes(std::int64_t{1} << 60));
  if (const auto refusal = planner_->refusal_of(whole))
    throw InputError("policy " + name + ": " + *refusal);
  return travelling_.emplace(name, schedule::OwedByName(planner_->program(), policy)).first->second;
}

search::Start Site::own_buckets(const Question& question, const schedule::Policy& policy) {
  if (job_ && (job_->zero != jobs::Zero::Nothing || job_->layout.pp > 1)) {
    throw InputError("groups: are of a job without stages that all-reduces: pp=1, zero=0");
  }
  if (schedule::needs_costs(policy)) {
    throw InputError(
        "groups: go with a policy that searches nothing, such as per-tensor:mode=copy, not " +
        schedule::to_string(policy));
  }
  const schedule::Program& program = planner_->program();
  const schedule::Decisions& decided = policy.decisions;
  schedule::Schedule schedule;
  if (decided.stages || decided.sharding || decided.gathers) {
    const schedule::Groups groups =
        schedule::groups_named(program, travelling_with(policy), *question.groups);
    schedule::PolicyResult made = schedule::decide_groups(program, groups, policy);
    if (made.failure) throw InputError("groups: " + *made.failure);
    schedule = std::move(made.schedule);
  } else {
    schedule = schedule::schedule_of(program, *owed_, *question.groups, policy, frame_of(policy));
  }
  // Whole gradients, each in one bucket, reduced once: illegal only if one comes too late.
  if (const auto late =
          schedule::late_for_a_reader(program, owed_->all, owed_->readers, schedule)) {
    throw InputError("groups: " + *late);
  }
  return search::NamedSchedule{"own", std::move(schedule)};
}

search::Start Site::start_of(const Question& question) {
  forget();
  if (!question.plan.empty()) {
    return search::NamedSchedule{
        question.plan, schedule::read_plan_onto(question.plan, planner_->program()).schedule};
  }
  const schedule::Policy policy = policy_for(question);
  if (!question.groups) return policy;
  return own_buckets(question, policy);
}

std::optional<search::Bound> Site::bound_of(const search::Candidate& candidate) {
  if (!candidate.bounded) return std::nullopt;
  return planner_->lower_bound(candidate);
}

// What a rank keeps all step long; of a job its peak.
schedule::Room Site::memory_of(const schedule::Schedule& schedule) const {
  const std::optional<Bytes> capacity = inputs_->machine.capacity();
  return job_ ? predict::room_of(jobs::memory_of(*job_), capacity)
              : predict::room_of_kept(resident_->of(schedule), capacity);
}

// What the target makes of the candidate, told how; the candidate as it stands where it has no words for it.
Told Site::told_to(const frameworks::Framework& target, search::Candidate& candidate) {
  Told told;
  if (!candidate.plan) told.said = target.says(candidate.spec, gradients_);
  if (told.said) {
    const auto run = attempt([&] {
      schedule::Schedule schedule =
          frameworks::as_run(target, planner_->program(), candidate.schedule);
      told.is_changed = schedule != candidate.schedule;
      if (told.is_changed) {
        candidate.summary = planner_->evaluate(schedule);
        candidate.bounded = planner_->is_bounded(schedule);
        candidate.schedule = std::move(schedule);
      }
    });
    if (!run) told.said.reset();  // it cannot run this program at all
  }
  told.words = told.said        ? told.said->words
               : candidate.plan ? std::string(frameworks::kOwnHooks)
                                : frameworks::in_words(candidate.spec);
  return told;
}

Outcome Site::weigh(const Question& question) {
  if (!question.names_schedule())
    return weigh_job(question.whole ? predict::Play::Whole : predict::Play::Repeats);
  static_cast<void>(planner());
  search::Candidate candidate = planner_->evaluate(start_of(question));
  Outcome found;
  found.told = told_to(*question.target, candidate);
  if (!candidate.plan) found.policy = schedule::to_string(candidate.spec);
  found.step = Duration(candidate.summary.step_ns);
  found.now = now_;
  found.micro_steps = candidate.schedule.merge.micro_steps;
  found.buckets = candidate.buckets();
  found.host_bound = host_bound_;
  if (error_ != nullptr)
    found.range =
        predict::widened(predict::step_range(*error_, found.step), found.step, host_bound_);
  found.exposed.total = Duration(candidate.summary.exposed_ns);
  found.communication = Duration(candidate.summary.communication_ns);
  found.compute = Duration(candidate.summary.compute_ns);
  found.memory = memory_of(candidate.schedule);
  found.bound = bound_of(candidate);
  if (job_) {
    found.job = {
        .job = jobs::to_string(*job_),
        .figures = jobs::figures_of(*job_, found.step, predict::peak_rate(*job_, *cluster_))};
  }
  found.schedule = std::move(candidate.schedule);
  return found;
}

Outcome Site::weigh_job(predict::Play how) const {
  const predict::JobPrediction priced = predict::predict_job(*job_, *cluster_, {}, how);
  const predict::StageParts& stage = priced.busiest();
  Outcome found{.policy = jobs::policy_text(priced.job), .step = priced.step};
  found.micro_steps = static_cast<std::int32_t>(job_->micro_batches());
  found.range = priced.range();
  found.host_bound = priced.host_bound;
  found.exposed = {.total = stage.exposed_total(), .by_purpose = stage.exposed};
  found.compute = stage.compute;
  found.memory = priced.room();
  found.bound = search::Bound{.time = priced.bound,
                              .schedules = "this layout, batch, sharding and recomputation"};
  found.job = {.job = jobs::to_string(priced.job),
               .figures = priced.figures,
               .idle_ranks = priced.idle,
               .bubble = stage.bubble};
  return found;
}

MadePlan Site::plan(const Question& question) {
  search::Planned planned = planner().plan(start_of(question));
  const search::Candidate& candidate = planned.candidate;
  std::optional<search::Bound> bound = bound_of(candidate);
  schedule::Plan plan{
      .program = planner_->program(), .schedule = candidate.schedule, .summary = inputs_->summary};
  plan.summary.predicted = {.step = Duration(candidate.summary.step_ns),
                            .exposed = Duration(candidate.summary.exposed_ns),
                            .lower_bound = bound ? bound->time : std::nullopt};
  return {.plan = std::move(plan), .planned = std::move(planned), .bound = std::move(bound)};
}

std::vector<GradientFacts> Site::gradients() {
  const std::vector<Duration> ready = planner().ready_alone();
  std::vector<GradientFacts> all;
  std::map<schedule::BucketKey, std::size_t> kinds;
  for (std::size_t i = 0; i < owed_->all.size(); ++i) {
    const schedule::OwedGradient& owed = owed_->all[i];
    all.push_back({.name = planner_->program().tensor(owed.tensor).name,
                   .bytes = owed.bytes,
                   .elements = owed.numel,
                   .ready = ready[i],
                   .kind = kinds.emplace(owed_->kinds[i], kinds.size()).first->second});
  }
  return all;
}

std::vector<std::string> Site::notes(const Outcome& outcome) {
  if (job_ && outcome.schedule.buckets.empty()) {  // as it is: nothing was lowered for it here
    std::vector<std::string> notes = jobs::notes_on(*job_);
    if (!options_.what_if.nothing()) {
      notes.insert(notes.begin(),
                   predict::what_if_note(options_.what_if, *options_.job,
                                         predict::load_cluster(options_.cluster, options_.data_dir),
                                         outcome.step));
    }
    std::ranges::move(models::assumptions(*cluster_, jobs::program_of(*job_)),
                      std::back_inserter(notes));
    return notes;
  }
  static_cast<void>(planner());
  return predict::notes_on(inputs_->machine, planner_->program(), inputs_->summary,
                           outcome.schedule);
}

std::string Site::remembered(std::string key, const std::function<std::string()>& make) {
  constexpr std::size_t kMost = 20'000;
  const auto known = remembered_.find(key);
  if (known != remembered_.end()) return known->second;
  if (remembered_.size() > kMost) remembered_.clear();
  return remembered_.emplace(std::move(key), make()).first->second;
}

std::shared_ptr<Weigher::Kept> Weigher::kept_for(const Question& question) {
  const std::string key = site_key(question);
  const std::lock_guard lock(mutex_);
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    if (at->first != key) continue;
    kept_.splice(kept_.begin(), kept_, at);
    return at->second;
  }
  kept_.emplace_front(key, std::make_shared<Kept>());
  if (kept_.size() > kKept) kept_.pop_back();
  return kept_.front().second;
}

void Weigher::at_site(const Question& question, const std::function<void(Site&)>& ask) {
  const std::shared_ptr<Kept> kept = kept_for(question);
  const std::lock_guard lock(kept->mutex);
  try {
    if (!kept->site) kept->site.emplace(question, data_dir_);
    ask(*kept->site);
  } catch (const InputError&) {
    throw;
  } catch (...) {  // it may have left the site half changed
    kept->site.reset();
    throw;
  }
}

Outcome Weigher::weigh(const Question& question) {
  Outcome found;
  at_site(question, [&](Site& site) { found = site.weigh(question); });
  return found;
}

}  // namespace dovetail::answers
