// What is known of a framework, in one value: the names of policies that stand for it, the rule of its buckets,
// what it can be told and in which words, and the file that tells it.
//
// Each framework's file (torch_ddp.cc, xla.cc, ...) gives one or more; all() lists them. Everybody asks these
// values: `--policy xla`, the column "in the words of" and `--framework` of explore, the settings that diagnose weighs,
// the curves of explore's page, `export --to`, and the test that holds the table of docs/settings.md to them.
//
//   id          closes a bucket                                       in flight  source
//   torch       on reaching bucket_cap_mb; the first on reaching      any        torch 2.14 nn/parallel/distributed.py,
//               1 MiB where no cap is given                                      c10d/reducer.cpp
//   torch1      the first always on reaching 1 MiB                    any        torch 1.13 nn/parallel/distributed.py
//   fsdp        where a list of modules given to fully_shard ends     1, or K    torch 2.14 distributed/fsdp
//   megatron    on reaching --ddp-bucket-size elements                any        Megatron-Core 0.20 arguments.py,
//                                                                                core/distributed
//   deepspeed   before exceeding reduce_bucket_size elements          1          zero/stage_1_and_2.py, config.py
//   horovod     at every cycle of its thread, and before exceeding    any        horovod operations.cc, controller.cc
//               the fusion threshold
//   xla         before exceeding the combiner's threshold             any        xla gpu flags
//
// "1 in flight": compute waits for the reduction before it once the next bucket is full.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "frameworks/export.h"
#include "schedule/policies/bucket_rule.h"
#include "schedule/policies/policies.h"

namespace dovetail::frameworks {

class Restriction;

// How many buckets of a step may travel at once. One: what its last gradient's stream runs after a bucket
// is full also waits for the bucket before it, whose buffer the next one takes.
enum class InFlight : std::uint8_t { Any, One };

// One way to set the option that says how large a bucket may be.
struct Chosen {
  std::int64_t number = 0;  // in bytes or elements, as the option counts
  bool is_set = true;       // no: it is what the framework does by itself
  Bytes bytes{};            // the same in bytes
  std::size_t buckets = 0;  // that it makes
  InFlight in_flight = InFlight::Any;
  Duration cycle{};  // of the thread that launches, where there is one
};

struct Written {
  std::string setting;  // "bucket_cap_mb=25"
  std::string line;     // the whole line to paste
};

// The option that says how large a bucket may be.
struct SizeOption {
  schedule::Closes closes = schedule::Closes::OnReaching;
  schedule::CountedIn unit = schedule::CountedIn::Bytes;
  std::int64_t written_in = 1;  // of these; PyTorch's MiB are 2^20
  // The limits of the first bucket, the second, ... with this number; without one: by itself, over so many
  // ranks, and empty where nothing is made without the option.
  std::vector<std::int64_t> (*limits)(std::optional<std::int64_t> number,
                                      std::int64_t ranks) = nullptr;
  Written (*write)(const Chosen&) = nullptr;
  std::vector<InFlight> in_flight = {InFlight::Any};
  std::vector<Duration> cycles = {};  // of its thread; the first is its own
};

// How a framework is told: by an option of its own, by nothing (it is what it does by itself), by the file that
// `export --to` writes, or by such a file that names the buckets one by one.
enum class ToldBy : std::uint8_t { Setting, Default, File, List };

// A policy in the framework's words.
struct Said {
  std::string words;       // "PyTorch DDP: bucket_cap_mb=8"
  std::string paste = {};  // of a Setting: the line
  ToldBy by = ToldBy::Setting;
};

// What words depend on beside the policy.
struct Gradients {
  Bytes element{4};
  std::int64_t ranks = 1;
};

// What a writer writes of. All outlive it.
struct Writing {
  const Framework& framework;
  const schedule::Plan& plan;
  const Machine& machine;
  const ExportOptions& options;
};

struct Framework {
  std::string_view id;    // as typed after --framework and --to
  std::string_view name;  // for people: "Megatron-Core"
  std::vector<schedule::Preset> presets = {};

  std::optional<SizeOption> size = {};
  // The policy that stands for buckets of these limits; for explore's rows.
  std::string (*policy)(std::span<const Bytes> limits) = nullptr;
  // Policies that stand for other settings: always compared (`usual`), where no policy was asked for (`more`),
  // and at the best of the sizes that are swept (`swept`).
  std::vector<std::string_view> usual = {}, more = {}, swept = {};
  // Nothing: this framework does not do what the policy says.
  std::optional<Said> (*says)(const schedule::Policy& policy, const Gradients& gradients) = nullptr;
  // These buckets one by one, of so many parameters each, into which gradients are copied or which
  // they are views of; null where it has no words for that.
  Written (*list)(std::span<const Bytes> sizes, const std::string& counts,
                  schedule::BucketMode mode) = nullptr;
  // What of its step a replay of DDP's does not hold, one sentence each.
  std::vector<std::string_view> not_replayed = {};
  // The policy of its curve on explore's page, and the label of its axis; empty: it has none. Of a policy that gathers
  // before each use the curve is over how far ahead it does, and these words say whether forward reshards.
  std::string_view curve = {}, axis = {}, reshards = {}, keeps = {};

  // The file of `export`: for what, and what is in it; what the framework cannot do, given up one by one.
  std::string_view title = {}, writes = {};
  // The file goes by names of parameters: none is written of a plan that has places only (schedule/place_names.h).
  bool names_parameters = false;
  void (*restrict_to)(Restriction&) =
      nullptr;  // throws InputError where it cannot run the Schedule at all
  Export (*write)(Restriction& left, const Writing& writing) = nullptr;  // after restrict_to
};

const std::vector<Framework>& all();
// By id. REQUIRES: there is one.
const Framework& framework(std::string_view id);
// Throws InputError with the nearest id, and with those there are, for the option (of frameworks for which `of`
// holds).
const Framework& parse_framework(std::string_view option, std::string_view word,
                                 bool (*of)(const Framework&));
bool has_settings(const Framework& framework);  // `--framework` of diagnose
bool has_rows(const Framework& framework);      // `--framework` of explore
bool has_writer(const Framework& framework);    // `--to` of export
std::vector<std::string> ids(bool (*of)(const Framework&));
std::string id_list(bool (*of)(const Framework&));  // "torch, megatron, ..."

// A policy as typed, by its own name or by one that stands for it. Throws InputError.
schedule::Policy parse_policy(std::string_view text);
const std::vector<schedule::Preset>& presets();

// The framework that does the same, and what to set there:
//   torch-ddp:cap=8MiB,first=1MiB        PyTorch 1.x DDP: bucket_cap_mb=8
//   torch-ddp:cap=8MiB,first=8MiB        PyTorch DDP: bucket_cap_mb=8        (2.6 and later)
//   exact:mode=copy,wait=end-of-backward PyTorch DDP: bucket_cap_mb_list (export --to torch)
//   exact                                dovetail_torch.apply (own hooks)
std::string in_words(const schedule::Policy& policy);
inline constexpr std::string_view kOwnHooks = "dovetail_torch.apply (own hooks)";

}  // namespace dovetail::frameworks
