// A job in one line: MODEL:KEY=VALUE,KEY=VALUE,...
//
//   llama3_70b:tp=8,pp=4,dp=2,seq=8192,mbs=1,gbs=64,recompute=selective
//
// Keys: dp dp_shard tp sp cp ep etp pp vp schedule, seq mbs gbs, autocast dtype optimizer grads reduce products master states,
// recompute recompute_layers, lora lora_on, zero reshard prefetch bucket overlap_grads overlap_params sync_each async_tp
// exchange imbalance flash attention kernels wrap as. What each means stands at its field in job.h.
// optimizer= says states=, too, and autocast= says dtype=, grads=, reduce=f32 and master=0, unless they are given, wherever they stand.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/networks/job.h"

namespace dovetail::jobs {

// The model is a known name or a path to a config.json (hugging_face.h). Throws InputError, which names the
// option: an unknown key (with the nearest), a value that is none, options that cannot be together.
Job parse_job(std::string_view text);

// Sets one key of a job, as the text does; for readers of other texts, and for what follows their file:
// "train.toml:tp=4". Throws InputError. Does not complete() the job.
void set_option(Job& job, std::string_view key, std::string_view value, const std::string& where);
// "tp=8,pp=4": each in turn.
void set_options(Job& job, std::string_view list, const std::string& where);

// The job with these options; nothing where it does not hold together, or nothing changes.
std::optional<Job> with_options(const Job& job, const std::string& options);

// In one line, with every key that is not as it is by itself: parse_job(to_string(job)) == job, notes
// aside.
std::string to_string(const Job& job);

// "dp", "dp_shard", ...
std::vector<std::string> job_keys();

// A key that two jobs say differently.
struct Difference {
  std::string key;
  std::string here, there;  // its values; "" where none is said
};

// In the order of the keys; models aside.
std::vector<Difference> differences(const Job& here, const Job& there);

}  // namespace dovetail::jobs
