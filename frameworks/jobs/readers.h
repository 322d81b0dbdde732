// A reader per framework: what its configuration says, as a Job. job_source.h tells them apart.
//
// Each states the version whose source was read. The rest of what makes a job is said after the file,
// "train.toml:tp=4,world=64", in the words of models/networks/text.h, and goes before what the file says.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frameworks/jobs/options.h"
#include "frameworks/jobs/shell.h"
#include "models/networks/job.h"

namespace dovetail::frameworks {

// What stands after the file.
struct Behind {
  std::string where;       // begins messages
  std::string list = {};   // KEY=VALUE,KEY=VALUE of models/networks/text.h
  std::string model = {};  // a name or a config.json; "" where it is not said
  std::int64_t world = 0;  // ranks; 0 where that is not said
  std::map<std::string, std::string> environment = {};  // NAME=VALUE before a script
  // unknown=ignored: keys that the framework does not know are passed over.
  bool passes_unknown = false;
  std::optional<jobs::Model> shape = std::nullopt;  // in place of a model by name

  [[nodiscard]] bool says(std::string_view key) const;
  [[nodiscard]] jobs::Model model_or(jobs::Model (*otherwise)(Options&), Options& options) const;
};

// "tp=4,world=64,model=llama3_8b", which stands behind `where`.
Behind said_after(const std::string& where, std::string_view list);

// Which degree is what the others leave of the world.
enum class Free { DataParallel, Sharded, None };

// Takes the layout (and all else) that was said, and gives `free` the rest of the world; a degree that was said is
// not free. Throws InputError where that is no whole number, and `unknown_world` where a degree is free and nobody says
// how many ranks there are.
void lay_out(jobs::Job& job, const Behind& said, Free free, const std::string& unknown_world);

// Says of an option what is counted in its place.
void assume(jobs::Job& job, std::string_view option, std::string_view value,
            std::string_view counted);

// What nobody asked for (Options::rest) becomes assumptions and notes of the job.
void take_rest(jobs::Job& job, const Options& options, const KeyTable& keys, const Behind& said);

// The known model of that shape under its own name (models/networks/model.h), or this one.
jobs::Model recognised(jobs::Model model);

// Which collectives PyTorch's asynchronous tensor parallelism leaves alone (2.15, findings/inductor_async_tp.sh).
std::string left_alone_by_async_tp(const jobs::Batch& batch);

// [model], [parallelism], [training], ... of torchtitan 0.2.2, the last version that is configured by TOML.
jobs::Job read_torchtitan(Options& options, const Behind& said);
// The arguments of Megatron-LM (Megatron-Core 0.20), or a script that contains them.
jobs::Job read_megatron(Script script, const Behind& said);
// DeepSpeed 0.19's ds_config.json, which says neither model nor world.
jobs::Job read_deepspeed(Options& options, const Behind& said);

}  // namespace dovetail::frameworks
