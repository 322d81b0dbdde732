// Keys of a job's text, each with how it is read and printed; what they mean stands at their fields in job.h.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <utility>

#include "base/attempt.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "base/units.h"
#include "models/networks/hugging_face.h"
#include "schedule/policies/fsdp.h"

namespace dovetail::jobs {
namespace {

// A value as somebody typed it.
struct Given {
  std::string_view key, value;
  const std::string& where;

  [[noreturn]] void fail(const std::string& expected) const {
    throw InputError(where + ": " + std::string(key) + ": expected " + expected + ", found \"" +
                     std::string(value) + "\"");
  }
};

struct Key {
  std::string key;
  std::function<void(Job&, const Given&)> set;
  std::function<std::string(const Job&)> text;
  bool leads = false;  // says others, too, unless they are given
};

template <class Number>
Number number_of(const Given& given, const char* expected) {
  Number value{};
  const char* const end = given.value.data() + given.value.size();
  const auto [at, error] = std::from_chars(given.value.data(), end, value);
  if (error != std::errc() || at != end || value < 0) given.fail(expected);
  return value;
}

// `member` reaches the field: [](auto& job) -> auto& { return job.layout.tp; }.
template <class Member>
Key whole(const char* key, Member member) {
  return {key,
          [member](Job& job, const Given& given) {
            member(job) = number_of<std::int64_t>(given, "a whole number");
          },
          [member](const Job& job) { return std::to_string(member(job)); }};
}

template <class Member>
Key flag(const char* key, Member member) {
  return {key,
          [member](Job& job, const Given& given) {
            if (given.value != "yes" && given.value != "no") given.fail("yes or no");
            member(job) = given.value == "yes";
          },
          [member](const Job& job) { return std::string(member(job) ? "yes" : "no"); }};
}

template <class Member>
Key word(const char* key, Member member) {
  return {key,
          [member](Job& job, const Given& given) {
            using Enum = std::remove_reference_t<decltype(member(job))>;
            const auto value = word_to<Enum>(given.value);
            if (!value) given.fail(word_list<Enum>());
            member(job) = *value;
          },
          [member](const Job& job) { return std::string(to_string(member(job))); }};
}

Key imbalance_key() {
  return {"imbalance",
          [](Job& job, const Given& given) {
            const std::string text(given.value);
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            if (text.empty() || *end != '\0' || !(value >= 1) || value > 1e3) {
              given.fail("a number from 1 to 1000");
            }
            job.expert_imbalance = value;
          },
          [](const Job& job) {
            std::string text = std::to_string(job.expert_imbalance);
            text.erase(text.find_last_not_of('0') + 1);
            if (text.ends_with('.')) text.pop_back();
            return text;
          }};
}

Key reshard_key() {
  Key key = flag(
      "reshard", [](auto& job) -> auto& { return job.reshard; });
  key.set = [set = key.set](Job& job, const Given& given) {
    if (schedule::is_some_ranks(given.value)) {
      throw InputError(given.where + ": reshard: " + std::string(schedule::kReshardOverSome));
    }
    set(job, given);
  };
  return key;
}

Key bucket_key() {
  return {"bucket",
          [](Job& job, const Given& given) {
            const auto size = attempt([&] { return parse_bytes(given.value); });
            if (!size) given.fail("a size such as 25MiB");
            if (*size.value < Bytes(1)) given.fail("at least 1B");
            job.bucket_bytes = size.value->count();
          },
          [](const Job& job) {
            return job.bucket_bytes ? std::to_string(*job.bucket_bytes) + "B" : std::string();
          }};
}

Key layers_key() {
  return {"layers",
          [](Job& job, const Given& given) {
            job.layout.layers.clear();
            std::string_view rest = given.value;
            while (true) {
              const std::size_t slash = std::min(rest.find('/'), rest.size());
              constexpr const char* kExpected = "whole numbers such as 21/20/20/19 or 21/20x2/19";
              constexpr std::int64_t kMostStages = 1 << 16;
              const std::string_view part = rest.substr(0, slash);
              const std::size_t times = std::min(part.find('x'), part.size());
              const auto number = [&](std::string_view text) {
                return number_of<std::int64_t>(Given{given.key, text, given.where}, kExpected);
              };
              const std::int64_t layers = number(part.substr(0, times));
              const std::int64_t stages = times < part.size() ? number(part.substr(times + 1)) : 1;
              const std::int64_t all = std::ssize(job.layout.layers) + stages;
              if (stages < 1 || stages > kMostStages || all > kMostStages) given.fail(kExpected);
              job.layout.layers.resize(static_cast<std::size_t>(all), layers);
              if (slash == rest.size()) return;
              rest.remove_prefix(slash + 1);
            }
          },
          [](const Job& job) {
            std::string text;
            const std::vector<std::int64_t>& all = job.layout.layers;
            for (std::size_t i = 0; i < all.size();) {
              std::size_t end = i;
              while (end < all.size() && all[end] == all[i]) ++end;
              const bool is_run = end - i > 2;
              if (!is_run) end = i + 1;
              text += (text.empty() ? "" : "/") + std::to_string(all[i]) +
                      (is_run ? "x" + std::to_string(end - i) : "");
              i = end;
            }
            return text;
          }};
}

// "layernorm+moe_act".
Key modules_key() {
  return {
      "recompute_modules",
      [](Job& job, const Given& given) {
        job.recompute_modules = 0;
        std::string_view rest = given.value;
        while (!rest.empty()) {
          const std::size_t plus = std::min(rest.find('+'), rest.size());
          const auto module = word_to<RecomputedModule>(rest.substr(0, plus));
          if (!module)
            given.fail("layernorm, moe_act, mla_up_proj, mlp, moe or shared_experts, joined by +");
          job.recompute_modules |= static_cast<std::uint8_t>(1U << static_cast<unsigned>(*module));
          rest.remove_prefix(std::min(plus + 1, rest.size()));
        }
      },
      [](const Job& job) {
        std::string text;
        for (const RecomputedModule module : kAllOf<RecomputedModule>) {
          if ((job.recompute_modules >> static_cast<unsigned>(module) & 1U) != 0)
            text += (text.empty() ? "" : "+") + std::string(to_string(module));
        }
        return text;
      }};
}

// A moment or two: what is kept beside a parameter follows.
Key optimizer_key() {
  Key key = word(
      "optimizer", [](auto& job) -> auto& { return job.optimizer; });
  key.set = [set = key.set](Job& job, const Given& given) {
    set(job, given);
    job.precision.state_bytes = job.optimizer == Optimizer::Adam ? 8 : 4;
  };
  key.leads = true;
  return key;
}

Key autocast_key() {
  Key key = word(
      "autocast", [](auto& job) -> auto& { return job.precision.autocast; });
  key.set = [set = key.set](Job& job, const Given& given) {
    set(job, given);
    Precision& p = job.precision;
    if (p.autocast == Autocast::No) return;
    p.compute = p.gradient = p.reduce = schedule::DType::F32;
    p.master_bytes = 0;
  };
  key.leads = true;
  return key;
}

const std::vector<Key>& keys() {
#define DOVETAIL_FIELD(path) \
  [](auto& job) -> auto& { return job.path; }
  static const std::vector<Key> kKeys = {
      whole("dp", DOVETAIL_FIELD(layout.dp)),
      whole("dp_shard", DOVETAIL_FIELD(layout.dp_shard)),
      whole("tp", DOVETAIL_FIELD(layout.tp)),
      flag("sp", DOVETAIL_FIELD(layout.sp)),
      whole("cp", DOVETAIL_FIELD(layout.cp)),
      whole("ep", DOVETAIL_FIELD(layout.ep)),
      whole("etp", DOVETAIL_FIELD(layout.etp)),
      whole("pp", DOVETAIL_FIELD(layout.pp)),
      whole("vp", DOVETAIL_FIELD(layout.vp)),
      word("schedule", DOVETAIL_FIELD(layout.order)),
      layers_key(),
      whole("seq", DOVETAIL_FIELD(batch.sequence)),
      whole("mbs", DOVETAIL_FIELD(batch.micro)),
      whole("gbs", DOVETAIL_FIELD(batch.global)),
      autocast_key(),
      word("dtype", DOVETAIL_FIELD(precision.compute)),
      optimizer_key(),
      word("updates", DOVETAIL_FIELD(updates)),
      word("grads", DOVETAIL_FIELD(precision.gradient)),
      word("reduce", DOVETAIL_FIELD(precision.reduce)),
      word("products", DOVETAIL_FIELD(precision.products)),
      word("scaling", DOVETAIL_FIELD(precision.scaling)),
      whole("master", DOVETAIL_FIELD(precision.master_bytes)),
      whole("states", DOVETAIL_FIELD(precision.state_bytes)),
      word("recompute", DOVETAIL_FIELD(recompute)),
      whole("recompute_layers", DOVETAIL_FIELD(recompute_layers)),
      modules_key(),
      whole("lora", DOVETAIL_FIELD(lora)),
      word("lora_on", DOVETAIL_FIELD(lora_on)),
      word("zero", DOVETAIL_FIELD(zero)),
      reshard_key(),
      whole("prefetch", DOVETAIL_FIELD(prefetch)),
      bucket_key(),
      flag("overlap_grads", DOVETAIL_FIELD(overlap_gradients)),
      flag("overlap_params", DOVETAIL_FIELD(overlap_parameters)),
      flag("sync_each", DOVETAIL_FIELD(sync_each)),
      flag("async_tp", DOVETAIL_FIELD(async_tp)),
      word("exchange", DOVETAIL_FIELD(exchange)),
      word("dispatch", DOVETAIL_FIELD(dispatch)),
      imbalance_key(),
      flag("flash", DOVETAIL_FIELD(flash)),
      word("attention", DOVETAIL_FIELD(attention)),
      word("kernels", DOVETAIL_FIELD(kernels)),
      word("loss", DOVETAIL_FIELD(loss)),
      flag("graph", DOVETAIL_FIELD(graph)),
      word("wrap", DOVETAIL_FIELD(wrap)),
      word("as", DOVETAIL_FIELD(as))};
#undef DOVETAIL_FIELD
  return kKeys;
}

// How other tools call what has another key here; "" where none does.
std::string_view own_word_for(std::string_view key) {
  constexpr std::array<std::array<std::string_view, 2>, 14> kWords{{{"ac", "recompute"},
                                                                    {"amp", "autocast"},
                                                                    {"batch", "gbs or mbs"},
                                                                    {"checkpointing", "recompute"},
                                                                    {"ddp", "dp"},
                                                                    {"fp4", "products=fp4"},
                                                                    {"fp8", "products=fp8"},
                                                                    {"framework", "as"},
                                                                    {"fsdp", "dp_shard"},
                                                                    {"hsdp", "dp_shard and dp"},
                                                                    {"precision", "dtype"},
                                                                    {"sequence", "seq"},
                                                                    {"sharding", "zero"},
                                                                    {"stages", "pp"}}};
  const auto* found = std::ranges::find(kWords, key, [](const auto& pair) { return pair[0]; });
  return found == kWords.end() ? std::string_view() : (*found)[1];
}

}  // namespace

void set_option(Job& job, std::string_view key, std::string_view value, const std::string& where) {
  const auto found = std::ranges::find(keys(), key, &Key::key);
  if (found != keys().end()) return found->set(job, {key, value, where});
  const std::vector<std::string> known = job_keys();
  if (key == "offload") {
    throw InputError(where + ": offload: moving states or activations to the host is not modelled");
  }
  std::string meant(own_word_for(key));
  if (meant.empty()) meant = nearest_word(key, known);
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "known: " : ", ") + one;
  throw InputError(where + ": unknown option \"" + std::string(key) + "\"; " +
                   (meant.empty() ? list : "did you mean \"" + meant + "\"?"));
}

void set_options(Job& job, std::string_view list, const std::string& where) {
  std::vector<std::pair<std::string_view, std::string_view>> given;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view option = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    const std::size_t equals = option.find('=');
    if (equals == std::string_view::npos) {
      throw InputError(where + ": expected KEY=VALUE, found \"" + std::string(option) + "\"");
    }
    const std::string_view key = option.substr(0, equals);
    if (std::ranges::find(given, key, &decltype(given)::value_type::first) != given.end()) {
      throw InputError(where + ": option " + std::string(key) + " is given twice");
    }
    given.emplace_back(key, option.substr(equals + 1));
  }
  std::stable_partition(given.begin(), given.end(), [](const auto& one) {
    const auto known = std::ranges::find(keys(), one.first, &Key::key);
    return known != keys().end() && known->leads;
  });
  for (const auto& [key, value] : given) set_option(job, key, value, where);
}

Job parse_job(std::string_view text) {
  const std::string where = "job \"" + std::string(text) + "\"";
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string name(text.substr(0, colon));
  const bool is_file = name.ends_with(".json") || name.find('/') != std::string::npos;
  Job job{.model = is_file ? load_config(name) : known_model(name)};
  job.batch.sequence = job.model.sequence;
  if (colon < text.size()) set_options(job, text.substr(colon + 1), where);
  complete(job, where);
  return job;
}

std::optional<Job> with_options(const Job& job, const std::string& options) {
  Job other = job;
  const auto changed = attempt([&] {
    set_options(other, options, "a change of the job");
    complete(other, "a change of the job");
  });
  return !changed || other == job ? std::nullopt : std::optional(std::move(other));
}

std::string to_string(const Job& job) {
  Job plain{.model = job.model};
  plain.batch.sequence = job.model.sequence;
  std::vector<const Key*> leading;  // are read first: the others are as these say
  for (const Key& key : keys()) {
    const std::string value = key.text(job);
    if (!key.leads || value == key.text(plain)) continue;
    key.set(plain, {key.key, value, key.key});
    leading.push_back(&key);
  }
  std::string list;
  for (const Key& key : keys()) {
    std::string value = key.text(job);
    const bool is_said = std::ranges::find(leading, &key) != leading.end();
    if (!is_said && (value.empty() || value == key.text(plain))) continue;
    list += (list.empty() ? ":" : ",") + key.key + "=" + value;
  }
  return job.model.name + list;
}

std::vector<std::string> job_keys() {
  std::vector<std::string> names;
  for (const Key& one : keys()) names.push_back(one.key);
  return names;
}

std::vector<Difference> differences(const Job& here, const Job& there) {
  std::vector<Difference> found;
  for (const Key& key : keys()) {
    Difference one{.key = key.key, .here = key.text(here), .there = key.text(there)};
    if (one.here != one.there) found.push_back(std::move(one));
  }
  return found;
}

}  // namespace dovetail::jobs
