// Every reader of the project as a function of a text.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/readers.h"

#include "base/attempt.h"
#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "calibrate/logs/cluster_of.h"
#include "calibrate/logs/flight_recorder.h"
#include "calibrate/logs/nccl_inspector.h"
#include "calibrate/logs/nccl_log.h"
#include "calibrate/logs/nccl_tests.h"
#include "cli/plain_groups.h"
#include "frameworks/framework.h"
#include "frameworks/jobs/flat_json.h"
#include "frameworks/jobs/launch.h"
#include "frameworks/jobs/readers.h"
#include "frameworks/jobs/toml.h"
#include "frameworks/jobs/trainer.h"
#include "frameworks/jobs/yaml.h"
#include "models/clusters/cluster.h"
#include "models/networks/zoo.h"
#include "models/workloads/profile.h"
#include "recordings/chakra.h"
#include "recordings/diagnose/diagnosis.h"
#include "recordings/diagnose/workload.h"
#include "recordings/formats.h"
#include "recordings/guess.h"
#include "recordings/hlo/hlo.h"
#include "recordings/horovod_timeline.h"
#include "recordings/kineto/reader.h"
#include "recordings/load/nsys_step.h"
#include "recordings/nsys/reader.h"
#include "recordings/parameters.h"
#include "recordings/profile_file.h"
#include "recordings/timeline/rank_set.h"
#include "schedule/plan_json.h"
#include "schedule/policies/policies.h"
#include "schedule/program_json.h"
#include "search/planner.h"
#include "tests/fuzz/token_mutator.h"
#include "traces/metrics.h"
#include "traces/trace_json.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dovetail {
namespace {

using imports::Format;

void read_program(std::string_view text) {
  const schedule::Program program = schedule::parse_program("f", text);
  const std::string again = schedule::program_to_json(program);
  DOVETAIL_CHECK(schedule::parse_program("g", again) == program);
}

void read_plan(std::string_view text) {
  const schedule::Plan plan = schedule::parse_plan("f", text);
  const std::string again = schedule::plan_to_json(plan);
  DOVETAIL_CHECK(schedule::plan_to_json(schedule::parse_plan("g", again)) == again);
}

void read_trace(std::string_view text) {
  const traces::Trace trace = traces::read_trace(JsonFile("f", text));
  const std::string again = traces::to_json(trace);
  DOVETAIL_CHECK(traces::to_json(traces::read_trace(JsonFile("g", again))) == again);
}

void read_cluster(std::string_view text) {
  const models::Cluster cluster = models::parse_cluster("f", text);
  const std::string again = models::cluster_to_json(cluster);
  DOVETAIL_CHECK(models::cluster_to_json(models::parse_cluster("g", again)) == again);
  for (const models::CollectiveSeries& series : cluster.collectives) {
    static_cast<void>(
        models::collective_table(cluster, {series.collective, series.ranks}).time(mib(25)));
  }
}

void read_profile(std::string_view text) {
  const models::Profile profile = models::read_profile(JsonFile("f", text));
  if (profile.world_size > 64) return;  // the Program lists every rank
  const schedule::Program program = models::profile_program(profile);
  DOVETAIL_CHECK(schedule::problems(program).empty());
  if (profile.collectives) static_cast<void>(models::profile_costs(profile, program));
}

// Steps of several policies are times, and none is faster than the bound.
void plan(const schedule::Program& program, const models::Costs& costs) {
  search::Planner planner(program, costs);
  for (const char* policy : {"per-tensor:mode=copy", "torch-ddp:cap=4MiB", "exact"}) {
    const search::Candidate found = planner.evaluate(schedule::parse_policy(policy));
    DOVETAIL_CHECK(found.summary.step_ns >= 0) << policy;
    if (!found.bounded) continue;
    const search::Bound bound = planner.lower_bound(found);
    DOVETAIL_CHECK(bound.problem.empty()) << bound.problem;
  }
}

// A small model on the machine that the file describes.
void plan_on_cluster(std::string_view text) {
  const models::Cluster cluster = models::parse_cluster("f", text);
  if (cluster.ranks > 64) return;  // the Program lists every rank
  const schedule::Program program =
      models::zoo_program("mlp", {.world_size = static_cast<std::int32_t>(cluster.ranks)});
  plan(program, models::costs_for(cluster, program));
}

void plan_profile(std::string_view text) {
  const models::Profile profile = models::read_profile(JsonFile("f", text));
  if (profile.world_size > 64 || profile.gradients.size() > 64 || !profile.collectives) return;
  const schedule::Program program = models::profile_program(profile);
  plan(program, models::profile_costs(profile, program));
}

// What the tool does with any log of collectives.
void use(const imports::CollectiveLog& log) {
  if (log.samples.empty()) return;
  const imports::ClusterResult result = imports::cluster_of(log, {.origin = "f"});
  const std::string again = models::cluster_to_json(result.cluster);
  DOVETAIL_CHECK(models::cluster_to_json(models::parse_cluster("g", again)) == again);
  imports::ClusterOptions over{.origin = "f"};
  over.prior = result.cluster;
  static_cast<void>(imports::cluster_of(log, over));
}

// Calls with a file that differs from the fuzzed one: it may be refused though that one is not.
template <class Call>
void beside_another(Call&& call) {
  try {
    call();
  } catch (const InputError&) {
    // the one way to refuse an input
  }
}

imports::CollectiveLog read_nccl_tests(std::span<const imports::Source> files) {
  return imports::read_nccl_tests(files);
}

template <imports::CollectiveLog (*Read)(std::span<const imports::Source>)>
void read_log(std::string_view text) {
  // Twice the same file, and one that differs a little: as two ranks would have it.
  const std::string other = mutate_tokens(text, text.size());
  const auto read_with = [&](std::string_view second) {
    const std::array<imports::Source, 2> files = {imports::Source{"f", text},
                                                  imports::Source{"g", second}};
    use(Read(files));
  };
  read_with(text);
  beside_another([&] { read_with(other); });
}

void use(const imports::ImportedStep& step) {
  const models::Profile again = models::read_profile(JsonFile("g", imports::profile_to_json(step)));
  DOVETAIL_CHECK(again.gradients.size() == step.profile.gradients.size());
}

void read_horovod_timeline(std::string_view text) {
  use(imports::read_horovod_timeline({"f", text}, 2));
}

void read_hlo(std::string_view text) {
  const imports::ImportedHlo step = imports::read_hlo({"f", text});
  const std::string file = schedule::program_to_json(step.program);
  DOVETAIL_CHECK(schedule::parse_program("g", file) == step.program);
}

void read_chakra(std::string_view text) { use(imports::read_chakra({"f", text}, 2)); }

#ifdef DOVETAIL_SQLITE
void read_nsys(std::string_view text) {
  std::vector<imports::Recording> ranks =
      imports::read_nsys(imports::Source{"f", text}, {.effort = 20});
  if (const auto job = attempt([&] { return imports::make_job(ranks, {}); })) {
    static_cast<void>(diagnose::diagnose(*job.value));
  }
  use(imports::nsys_step(std::move(ranks),
                         {.step = "step", .all_reduces = {.bytes = {mib(1), mib(2)}, .ranks = 2}}));
}
#endif

// A trace, alone and beside another rank's that differs a little: read, joined, diagnosed, made a workload of.
void read_kineto(std::string_view text) {
  const auto job_of = [](std::vector<std::string_view> texts) {
    std::vector<imports::Recording> traces;
    for (const std::string_view one : texts) {
      imports::Recording trace = imports::read_kineto(imports::ByteSource::memory("f", one, {}));
      trace.rank = static_cast<std::int64_t>(traces.size());
      traces.push_back(std::move(trace));
    }
    return imports::make_job(std::move(traces), {});
  };
  const std::string other = mutate_tokens(text, text.size());
  const imports::JobTrace job = job_of({text});
  static_cast<void>(diagnose::diagnose(job));
  const std::vector<std::string> settable = frameworks::ids(frameworks::has_settings);
  const frameworks::Framework& framework =
      frameworks::framework(settable[text.size() % settable.size()]);
  beside_another([&] { static_cast<void>(diagnose::diagnose(job_of({text, other}), framework)); });
  const diagnose::Extracted extracted =
      diagnose::workload_of(job, 0, diagnose::replay_rank(job.ranks.front()), {.name = "f"});
  if (const auto* workload = std::get_if<diagnose::TracedWorkload>(&extracted)) {
    static_cast<void>(models::read_profile(JsonFile("g", diagnose::workload_json(*workload))));
  }
}

// A list of parameters, as names for as many gradients of the sizes that it has, in ready order, and for two buckets of them.
void read_parameters(std::string_view text) {
  const imports::ParameterList list = imports::read_parameters("f", text);
  models::Profile profile;
  for (std::size_t p = list.parameters.size(); p-- > 0;) {
    profile.gradients.push_back({.name = "", .numel = list.parameters[p].elements, .ready = {}});
  }
  const std::array<std::size_t, 2> ends = {profile.gradients.size() / 2, profile.gradients.size()};
  for (const auto sizes : {imports::GradientSizes::OfBucketsOnly, imports::GradientSizes::Known}) {
    static_cast<void>(imports::name_gradients(profile, ends, sizes, list));
    for (std::size_t g = 0; g < profile.gradients.size(); ++g) {
      DOVETAIL_CHECK(profile.gradients[g].name ==
                     list.parameters[list.parameters.size() - 1 - g].name);
    }
  }
}

// A job in a framework's words, with what has to be said behind it.
void use(jobs::Job job) {
  jobs::complete(job, "f");
  DOVETAIL_CHECK(job.layout.world() == 64);
}

const frameworks::Behind kBehind = {
    .where = "f", .list = "", .model = "", .world = 64, .passes_unknown = true};

void read_torchtitan(std::string_view text) {
  frameworks::Options options("f", frameworks::read_toml("f", text));
  use(frameworks::read_torchtitan(options, kBehind));
}

void read_megatron(std::string_view text) {
  use(frameworks::read_megatron(frameworks::read_script("f", text), kBehind));
}

void read_deepspeed(std::string_view text) {
  frameworks::Options options("f", frameworks::flat_json("f", std::string(text)));
  frameworks::Behind behind = kBehind;
  behind.model = "mixtral_8x7b";
  use(frameworks::read_deepspeed(options, behind));
}

#ifdef DOVETAIL_YAML
// Whose file it is it says itself; what it does not say of the batch stands behind it.
template <jobs::Job (*Read)(const std::string&, const frameworks::Flat&, const frameworks::Behind&)>
void read_yaml_job(std::string_view text) {
  const frameworks::Flat keys = frameworks::flat(frameworks::read_yaml("f", std::string(text)));
  frameworks::Behind behind = kBehind;
  behind.model = "llama3_8b";
  behind.list = "seq=1024,mbs=1";
  use(Read("f", keys, behind));
}

jobs::Job as_axolotl(const std::string& file, const frameworks::Flat& keys,
                     const frameworks::Behind& said) {
  return frameworks::read_axolotl(file, keys, said);
}
jobs::Job as_llamafactory(const std::string& file, const frameworks::Flat& keys,
                          const frameworks::Behind& said) {
  return frameworks::read_llamafactory(file, keys, said);
}
// Presets that it names are not there.
jobs::Job as_primus(const std::string& file, const frameworks::Flat& keys,
                    const frameworks::Behind& said) {
  return frameworks::read_primus(file, keys, said);
}

void read_yaml(std::string_view text) {
  static_cast<void>(frameworks::read_yaml("f", std::string(text)));
}
#endif

void read_launch(std::string_view text) {
  frameworks::Behind behind = kBehind;
  behind.model = "llama3_8b";
  behind.list = "seq=1024,mbs=1";
  if (auto job = frameworks::read_launch(frameworks::read_script("f", text), behind)) use(*job);
}

// What is cut out of a line of evaluate is what a reader of JSON finds there.
void read_evaluate_groups(std::string_view text) {
  const std::optional<cli::PlainGroups> found = cli::plain_groups_in(text);
  if (!found) return;
  static_cast<void>(JsonFile("f", found->rest));  // else the line is read as a whole
  const JsonFile whole("g", text);
  std::vector<std::vector<std::string>> groups;
  for (const JsonValue group : whole.root().array("groups")) {
    std::vector<std::string>& names = groups.emplace_back();
    for (const JsonValue name : group.array()) names.push_back(name.string());
  }
  const auto same = [](const auto& a, const auto& b) { return std::ranges::equal(a, b); };
  DOVETAIL_CHECK(std::ranges::equal(groups, found->groups, same)) << text;
}

void guess(std::string_view text) { static_cast<void>(imports::guess_format(text)); }

constexpr std::array kReaders = {
    FuzzedReader{"program", read_program},
    FuzzedReader{"plan", read_plan},
    FuzzedReader{"trace", read_trace},
    FuzzedReader{"cluster", read_cluster},
    FuzzedReader{"profile", read_profile},
    FuzzedReader{"cluster-plan", plan_on_cluster},
    FuzzedReader{"profile-plan", plan_profile},
    FuzzedReader{to_string(Format::NcclTests), read_log<read_nccl_tests>},
    FuzzedReader{to_string(Format::NcclInspector), read_log<imports::read_nccl_inspector>},
    FuzzedReader{to_string(Format::FlightRecorder), read_log<imports::read_flight_recorder>},
    FuzzedReader{to_string(Format::NcclLog), read_log<imports::read_nccl_log>},
    FuzzedReader{to_string(Format::HorovodTimeline), read_horovod_timeline},
    FuzzedReader{to_string(Format::Chakra), read_chakra},
    FuzzedReader{to_string(Format::Hlo), read_hlo},
#ifdef DOVETAIL_SQLITE
    FuzzedReader{to_string(Format::Nsys), read_nsys},
#endif
    FuzzedReader{to_string(Format::Kineto), read_kineto},
    FuzzedReader{"parameters", read_parameters},
    FuzzedReader{"torchtitan", read_torchtitan},
    FuzzedReader{"megatron", read_megatron},
    FuzzedReader{"deepspeed", read_deepspeed},
#ifdef DOVETAIL_YAML
    FuzzedReader{"accelerate", read_yaml_job<frameworks::read_accelerate>},
    FuzzedReader{"axolotl", read_yaml_job<as_axolotl>},
    FuzzedReader{"llamafactory", read_yaml_job<as_llamafactory>},
    FuzzedReader{"primus", read_yaml_job<as_primus>},
    FuzzedReader{"yaml", read_yaml},
#endif
    FuzzedReader{"launch", read_launch},
    FuzzedReader{"evaluate-groups", read_evaluate_groups},
    FuzzedReader{"guess", guess},
};

}  // namespace

std::span<const FuzzedReader> fuzzed_readers() { return kReaders; }

}  // namespace dovetail
