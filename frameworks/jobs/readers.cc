// What the readers of all frameworks share: the rest of the world, and names of models.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/readers.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "models/networks/text.h"

namespace dovetail::frameworks {
namespace {

constexpr double kMostRanks = 1 << 24;

std::int64_t ranks_of(const std::string& where, std::string_view value) {
  std::int64_t ranks = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), ranks);
  if (error != std::errc() || end != value.data() + value.size() || ranks < 1 ||
      ranks > std::int64_t{1} << 24) {
    throw InputError(where + ": world: expected the number of ranks, found \"" +
                     std::string(value) + "\"");
  }
  return ranks;
}

// What is meant by what Trainer's flags are called.
std::string_view type_of_flag(const std::string& where, std::string_view said) {
  if (said == "bf16=yes") return "dtype=bf16";
  if (said == "fp16=yes") return "dtype=f16";
  if (said == "bf16=no" || said == "fp16=no") return "dtype=f32";
  if (said.starts_with("bf16=") || said.starts_with("fp16="))
    throw InputError(where + ": " + std::string(said.substr(0, 4)) +
                     ": expected yes or no, found \"" + std::string(said.substr(5)) + "\"");
  return "";
}

}  // namespace

Behind said_after(const std::string& where, std::string_view list) {
  Behind said{.where = where};
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view one = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    if (one.starts_with("world=")) {
      said.world = ranks_of(where, one.substr(6));
    } else if (one.starts_with("model=")) {
      said.model = one.substr(6);
    } else if (one == "unknown=ignored") {
      said.passes_unknown = true;
    } else if (const std::string_view type = type_of_flag(where, one); !type.empty()) {
      if (!said.says("dtype")) said.list += (said.list.empty() ? "" : ",") + std::string(type);
    } else {
      said.list += (said.list.empty() ? "" : ",") + std::string(one);
    }
  }
  return said;
}

bool Behind::says(std::string_view key) const {
  const std::string pair = "," + std::string(key) + "=";
  return ("," + list).find(pair) != std::string::npos;
}

jobs::Model Behind::model_or(jobs::Model (*otherwise)(Options&), Options& options) const {
  if (shape) return *shape;
  return recognised(model.empty() ? otherwise(options) : jobs::parse_job(model).model);
}

void lay_out(jobs::Job& job, const Behind& said, Free free, const std::string& unknown_world) {
  jobs::set_options(job, said.list, said.where);
  if (said.says(free == Free::Sharded ? "dp_shard" : "dp")) free = Free::None;
  if (free != Free::None && said.world == 0) throw InputError(said.where + ": " + unknown_world);
  jobs::Layout& l = job.layout;
  std::int64_t& degree = free == Free::Sharded ? l.dp_shard : l.dp;
  if (free != Free::None) degree = 1;
  double product = 1;
  std::string degrees;
  for (const auto& [name, one] :
       {std::pair{"dp", l.dp}, std::pair{"dp_shard", l.dp_shard}, std::pair{"cp", l.cp},
        std::pair{"tp", l.tp}, std::pair{"pp", l.pp}}) {
    product *= static_cast<double>(std::max<std::int64_t>(0, one));
    degrees += (degrees.empty() ? "" : " x ") + std::string(name) + "=" + std::to_string(one);
  }
  if (product < 1 || product > kMostRanks || job.batch.micro < 1 ||
      static_cast<double>(job.batch.micro) > kMostRanks) {
    throw InputError(said.where + ": " + degrees + ", mbs=" + std::to_string(job.batch.micro) +
                     ": expected degrees and sizes from 1 to 16777216");
  }
  if (said.world == 0) return;
  const auto ranks = static_cast<std::int64_t>(product);
  if (free == Free::None ? ranks != said.world : said.world % ranks != 0) {
    throw InputError(said.where + ": world: " + std::to_string(said.world) + " ranks are " +
                     (free == Free::None ? "not " : "no multiple of ") + degrees);
  }
  if (free != Free::None) degree = said.world / ranks;
}

void assume(jobs::Job& job, std::string_view option, std::string_view value,
            std::string_view counted) {
  job.assumed.push_back({.option = std::string(option),
                         .value = std::string(value),
                         .counted = std::string(counted)});
}

void take_rest(jobs::Job& job, const Options& options, const KeyTable& keys, const Behind& said) {
  Options::Rest rest = options.rest(keys, said.passes_unknown);
  std::ranges::move(rest.assumed, std::back_inserter(job.assumed));
  std::ranges::move(rest.notes, std::back_inserter(job.notes));
}

jobs::Model recognised(jobs::Model model) {
  for (const std::string& name : jobs::known_model_names()) {
    jobs::Model known = jobs::known_model(name);
    jobs::Model as_known = model;
    as_known.name = known.name;
    as_known.sequence = known.sequence;
    as_known.published = known.published;
    as_known.source = known.source;
    as_known.written = known.written;  // no framework's arguments say it
    if (as_known != known) continue;
    if (model.written.scale) known.written.scale = model.written.scale;
    return known;
  }
  return model;
}

}  // namespace dovetail::frameworks
