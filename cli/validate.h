// dovetail validate public: predictions beside what others measured and published (answers/validation/).
//
//   memory           rows  jobs  fits or not  ran, refused  failed, allowed  peaks  median  |median|   p90
//   nanotron         1545  1487       94.5 %             6               79    857   +3.7 %     9.0 %  24.9 %
//
// `fits or not`: of the rows whose device is known, how many ran and were said to fit, or failed and were
// said not to. Failures for other reasons are among them. The last three columns are errors of the peak of
// rows that ran, predicted / measured - 1.
//
//   order of two rows  where          predicted shorter by  pairs  right
//   nanotron           several nodes             5 to 10 %   4810   58 %
//
// With steps: of two layouts of one model on as many GPUs, how often the one that is predicted to be faster was.
//
//   scaling                          sizes         GPUs   worst  from    to
//   mlperf: llama31_405b fp8 on H100     5  512 to 8192  +3.0 %   512  8192
//
// With steps: the same benchmark on 512 to 8192 GPUs. The step on 8192 over the step on 512 is 3 % more than
// measured, and no other two are further off.
//
// validate collectives: validate_collectives.h; validate job: validate_job.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

#include "cli/document.h"
#include "cli/text.h"
#include "cli/validate_collectives.h"

namespace dovetail::cli {

struct ValidateOptions {
  std::string against;        // "public", "gpu", "collectives" or "job"
  std::string without = {};   // of "gpu": a kind of kernel, or "each"
  std::string folder;         // of the tables
  bool steps = false;         // also the steps of their jobs: minutes
  std::string rows = {};      // CSV to write: each step, measured and predicted; "": none
  std::string gpu = {};       // of gpu and job: another book; "": of the GPU that was measured
  std::string data_dir = {};  // holds clusters/
  ValidateCollectivesOptions collectives = {};  // its files are the job of "job"
  std::string log = {}, cluster = {};           // of job
  Detail detail = {};
  DocumentOptions document;
};

void validate(const ValidateOptions& options, std::ostream& out);

}  // namespace dovetail::cli
