// The list of frameworks, and what is asked of all of them: one by its name, the presets of all, the words for a policy.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/list.h"

#include <algorithm>
#include <iterator>

#include "base/attempt.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "frameworks/restriction.h"
#include "schedule/place_names.h"

namespace dovetail::frameworks {

const std::vector<Framework>& all() {
  static const std::vector<Framework> kAll = [] {
    std::vector<Framework> all;
    for (const auto of :
         {torch_ddp, megatron, deepspeed, horovod, xla, fsdp, inductor, nccl_tuner, paddle, apex}) {
      std::vector<Framework> own = of();
      std::ranges::move(own, std::back_inserter(all));
    }
    return all;
  }();
  return kAll;
}

const Framework& framework(std::string_view id) {
  const auto found = std::ranges::find(all(), id, &Framework::id);
  DOVETAIL_CHECK(found != all().end()) << "no framework " << id;
  return *found;
}

bool has_settings(const Framework& framework) { return framework.size.has_value(); }
bool has_rows(const Framework& framework) { return framework.says != nullptr; }
bool has_writer(const Framework& framework) { return framework.write != nullptr; }

std::vector<std::string> ids(bool (*of)(const Framework&)) {
  std::vector<std::string> ids;
  for (const Framework& framework : all()) {
    if (of(framework)) ids.emplace_back(framework.id);
  }
  return ids;
}

std::string id_list(bool (*of)(const Framework&)) {
  std::string list;
  for (const std::string& id : ids(of)) list += (list.empty() ? "" : ", ") + id;
  return list;
}

const Framework& parse_framework(std::string_view option, std::string_view word,
                                 bool (*of)(const Framework&)) {
  const std::vector<std::string> known = ids(of);
  if (std::ranges::find(known, word) != known.end()) return framework(word);
  const std::string near = nearest_word(word, known);
  throw InputError(std::string(option) + " \"" + std::string(word) +
                   "\": " + (near.empty() ? "unknown" : "did you mean " + near + "?") +
                   " (there are " + id_list(of) + ")");
}

const std::vector<schedule::Preset>& presets() {
  static const std::vector<schedule::Preset> kPresets = [] {
    std::vector<schedule::Preset> presets;
    for (const Framework& framework : all()) {
      std::ranges::copy(framework.presets, std::back_inserter(presets));
    }
    return presets;
  }();
  return kPresets;
}

schedule::Policy parse_policy(std::string_view text) {
  return schedule::parse_policy(text, presets());
}

bool groups_freely(const schedule::Policy& policy) {
  const schedule::Decisions& decided = policy.decisions;
  const schedule::BucketPlacement place = schedule::placement(policy);
  return decided.grouping && !decided.stages && !decided.sharding && place.streams == 1 &&
         place.launch == schedule::LaunchRule::WhenReady &&
         !std::holds_alternative<schedule::FirstFit>(*decided.grouping);
}

const schedule::ByLimits* limits_of(const schedule::Policy& policy) {
  const schedule::Decisions& decided = policy.decisions;
  if (!decided.grouping || decided.stages || decided.sharding) return nullptr;
  return std::get_if<schedule::ByLimits>(&*decided.grouping);
}

bool shards_updates(const schedule::Policy& policy) {
  const schedule::Decisions& decided = policy.decisions;
  return decided.sharding && !decided.gathers && !decided.stages;
}

std::string in_words(const schedule::Policy& policy) {
  for (const Framework& framework : all()) {
    if (!has_rows(framework)) continue;
    const std::optional<Said> said = framework.says(policy, {});
    if (said && said->by != ToldBy::List) return said->words;
  }
  const std::optional<Said> listed = framework("torch").says(policy, {});
  return listed ? listed->words : std::string(kOwnHooks);
}

void require_names(const Framework& framework, const schedule::Program& program) {
  if (!framework.names_parameters || !schedule::has_places_only(program)) return;
  throw CannotRun(
      std::string(framework.name) +
      "'s file names parameters, and this plan has none: it was made of a trace, which has no "
      "names. "
      "dovetail import kineto --parameters FILE gives them (NAME and shape, a line each); or use "
      "--to torch or deepspeed, which go by size, or dovetail_torch.apply, which maps by order "
      "and size");
}

Export export_plan(const Framework& framework, const schedule::Plan& plan, const Machine& machine,
                   const ExportOptions& options) {
  if (plan.schedule.buckets.empty()) throw CannotRun("the plan has no bucket");
  require_names(framework, plan.program);
  Restriction left(plan.program, plan.schedule, machine.step);
  framework.restrict_to(left);
  return framework.write(left, {framework, plan, machine, options});
}

schedule::Schedule as_run(const Framework& framework, const schedule::Program& program,
                          schedule::Schedule schedule) {
  if (framework.restrict_to == nullptr || schedule.buckets.empty()) return schedule;
  Restriction left(program, std::move(schedule));
  framework.restrict_to(left);
  return left.schedule();
}

namespace {

std::string export_command(const std::string& plan, const std::vector<std::string>& targets) {
  std::string command = "dovetail export " + plan + " --to ";
  for (std::size_t i = 0; i < targets.size(); ++i) {
    command += (i == 0 ? "" : i == 1 ? " (or " : ", ") + targets[i];
  }
  return command + (targets.size() > 1 ? ")" : "");
}

}  // namespace

std::string export_command(const std::string& plan) {
  return export_command(plan, ids(has_writer));
}

std::string export_command(const std::string& file, const schedule::Plan& plan) {
  // Every framework can run one stage and group, one way or the other.
  if (has_one_stage_and_group(plan.program, plan.schedule)) return export_command(file);
  std::vector<std::string> targets;
  for (const Framework& framework : all()) {
    if (!has_writer(framework)) continue;
    const bool runs = bool(attempt([&] { as_run(framework, plan.program, plan.schedule); }));
    if (runs) targets.emplace_back(framework.id);
  }
  return targets.empty() ? "" : export_command(file, targets);
}

}  // namespace dovetail::frameworks
