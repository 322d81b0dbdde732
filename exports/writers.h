// One writer per target; export_plan calls them.
//
// Each returns everything but what is common to all. REQUIRES: the plan has a bucket.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exports/export.h"

namespace dovetail::exports {

Export export_torch(const schedule::Plan& plan, const Machine& machine,
                    const ExportOptions& options);
Export export_megatron(const schedule::Plan& plan, const Machine& machine,
                       const ExportOptions& options);
Export export_deepspeed(const schedule::Plan& plan, const Machine& machine,
                        const ExportOptions& options);
Export export_horovod(const schedule::Plan& plan, const Machine& machine,
                      const ExportOptions& options);
Export export_xla(const schedule::Plan& plan, const Machine& machine, const ExportOptions& options);
Export export_fsdp(const schedule::Plan& plan, const Machine& machine,
                   const ExportOptions& options);
Export export_inductor(const schedule::Plan& plan, const Machine& machine,
                       const ExportOptions& options);
Export export_nccl_tuner(const schedule::Plan& plan, const Machine& machine,
                         const ExportOptions& options);

}  // namespace dovetail::exports
