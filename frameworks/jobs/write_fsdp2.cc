// Writes a job's sharding as Python for PyTorch's FSDP2: mesh, mixed precision, fully_shard layer by layer, prefetch
// lists, recomputation, and when gradients are reduced.
//
// Layers are found by the names that torchtitan (layers.N) and Hugging Face (model.layers.N) give them. Read in torch
// 2.14 distributed/fsdp/_fully_shard: a layer's parameters are gathered by one all-gather and its gradients reduced by
// one reduce-scatter; without lists the next layer is gathered ahead; parameters are held, and gradients kept, in the
// type in which the model was made. The last layer of all is not freed after forward unless asked for, as in torchtitan.
//
// Tensor parallelism, stages and context parallelism are the program's own: the mesh has tp and pp for them.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/writers.h"
#include "models/networks/text.h"

namespace dovetail::frameworks {
namespace {

using jobs::Job;
using schedule::DType;

[[noreturn]] void fsdp2_cannot(const std::string& why) {
  throw InputError("export: FSDP2 cannot run this job: " + why);
}

constexpr std::string_view kFsdp2Functions = R"py(

def device_mesh(device="cuda"):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device, tuple(MESH.values()), mesh_dim_names=tuple(MESH))


def shard(model, mesh):
    """fully_shard(model) layer by layer. A model under tensor parallelism has been cut along mesh["tp"] before; of a
    pipeline each stage is a model."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    for name, parameter in model.named_parameters():
        if parameter.dtype != getattr(torch, HELD_DTYPE):
            raise ValueError(f"{name} is {parameter.dtype}: make the model in {HELD_DTYPE}")
    policy = MixedPrecisionPolicy(param_dtype=getattr(torch, PARAM_DTYPE), reduce_dtype=getattr(torch, REDUCE_DTYPE))
    options = {"mesh": mesh["dp_replicate", "fsdp"] if MESH["dp_replicate"] > 1 else mesh["fsdp"], "mp_policy": policy}
    modules = {}
    for name, module in model.named_modules():
        modules.setdefault(".".join(part for part in name.split(".") if part != "_orig_mod"), module)
    blocks = next((modules[name] for name in ("layers", "model.layers") if name in modules), None)
    if blocks is None:
        raise ValueError("the model has neither layers nor model.layers")
    recompute(blocks)
    layers = [layer for _, layer in blocks.named_children()]
    ends = [[modules[name] for name in names if modules.get(name) is not None]
            for names in (("tok_embeddings", "model.embed_tokens"), ("norm", "output", "model.norm", "lm_head"))]
    if TIED:
        ends = [[], []]  # one weight: it stays with the model itself
    if ends[0]:
        fully_shard(ends[0], **options, reshard_after_forward=RESHARD_AFTER_FORWARD)
    for layer in layers:
        fully_shard(layer, **options, reshard_after_forward=RESHARD_AFTER_FORWARD)
    if ends[1]:
        fully_shard(ends[1], **options, reshard_after_forward=False)
    fully_shard(model, **options, reshard_after_forward=False)
    for i, layer in enumerate(layers):
        layer.set_modules_to_forward_prefetch(layers[i + 1 : i + 1 + PREFETCH])
        layer.set_modules_to_backward_prefetch(layers[max(0, i - PREFETCH) : i][::-1])
    if hasattr(model, "set_reduce_scatter_max_input_buffers"):
        model.set_reduce_scatter_max_input_buffers(len(layers))
    return model


def recompute(blocks):
    """Wraps the first RECOMPUTED_LAYERS layers: forward is run again in backward."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    for name, layer in list(blocks.named_children())[:RECOMPUTED_LAYERS]:
        blocks.register_module(name, checkpoint_wrapper(layer))


def begin_micro_batch(model, index):
    """Before forward of micro-batch 0, 1, ...: gradients are reduced in the last one, or in each."""
    model.set_requires_gradient_sync(SYNC_EACH or index == MICRO_BATCHES - 1)
)py";

std::string torch_name(DType type) {
  return type == DType::BF16 ? "bfloat16" : type == DType::F16 ? "float16" : "float32";
}

// What the model is made in: bf16 or fp16 where no master weights are kept.
DType held(const jobs::Precision& p) { return p.master_bytes == 0 ? p.compute : DType::F32; }

JobWords write_fsdp2(const Job& job) {
  const jobs::Layout& l = job.layout;
  if (job.zero != jobs::Zero::Parameters) {
    fsdp2_cannot("zero=" + std::string(to_string(job.zero)) +
                 ", and it divides parameters, gradients and states (dp_shard= in place of dp=)");
  }
  if (l.ep > 1 || l.etp > 1) fsdp2_cannot("experts need a mesh of their own: --to torchtitan");
  const auto number = [](const std::string& name, std::int64_t value) {
    return name + " = " + std::to_string(value);
  };
  const bool is_full = job.recompute == jobs::Recompute::Full;
  const std::int64_t layers = job.recompute_layers > 0 ? job.recompute_layers : job.model.layers;
  const auto quoted = [](DType type) { return "\"" + torch_name(type) + "\"\n"; };
  JobWords words;
  words.body =
      "\nMESH = {\"pp\": " + std::to_string(l.pp) + ", \"dp_replicate\": " + std::to_string(l.dp) +
      ", \"fsdp\": " + std::to_string(l.dp_shard * l.cp) + ", \"tp\": " + std::to_string(l.tp) +
      "}" + (l.cp > 1 ? "  # fsdp: shards x context-parallel ranks" : "") +
      "\nHELD_DTYPE = " + quoted(held(job.precision)) +
      "PARAM_DTYPE = " + quoted(job.precision.compute) +
      "REDUCE_DTYPE = " + quoted(job.precision.reduce) +
      "RESHARD_AFTER_FORWARD = " + (job.reshard ? "True" : "False") + "\n" +
      number("PREFETCH", std::max<std::int64_t>(1, job.prefetch)) + "  # layers ahead\n" +
      number("RECOMPUTED_LAYERS", is_full ? layers : 0) + "  # of each virtual stage\n" +
      number("MICRO_BATCHES", job.micro_batches()) + "\n" +
      "SYNC_EACH = " + (job.sync_each ? "True" : "False") +
      "  # or whole gradients stay until the last\n" +
      "TIED = " + (job.model.tied ? "True" : "False") + "  # embedding and head are one weight\n";
  words.body += kFsdp2Functions;
  words.notes.emplace_back("the optimizer is the program's own, and is made after shard()");
  if (l.tp > 1)
    words.notes.emplace_back("cut the model along mesh[\"tp\"] first (parallelize_module)");
  if (job.async_tp) {
    words.notes.push_back(
        "async_tp=yes is the program's own: torch.compile, symmetric memory for the group of "
        "mesh[\"tp\"], torch._inductor.config._micro_pipeline_tp = True; the step counts on "
        "collectives beside "
        "products that do not need them; " +
        left_alone_by_async_tp(job.batch));
  }
  if (l.pp > 1)
    words.notes.emplace_back("cut it into stages first; shard() takes one stage after the other");
  if (job.precision.autocast != jobs::Autocast::No)
    words.notes.push_back("autocast is the program's own: torch.autocast(\"cuda\", torch." +
                          torch_name(job.precision.product()) + ") around forward and loss");
  if (job.graph)
    words.notes.emplace_back("the CUDA graph of the step is the program's own (torch.cuda.graph)");
  if (job.lora > 0)
    words.notes.emplace_back("adapters are the program's own (PEFT), made before shard()");
  if (jobs::is_narrow(job.precision.products) || job.precision.products == schedule::Operands::Tf32)
    words.notes.push_back("products=" + std::string(to_string(job.precision.products)) +
                          " are the program's own; the step counts on them");
  if (job.flash && job.attention != schedule::AttentionKernel::Cudnn)
    words.notes.push_back("attention=" + std::string(to_string(job.attention)) +
                          " is the program's own");
  if (!job.flash) words.notes.emplace_back("flash=no: attention in operators is the program's own");
  if (l.cp > 1) words.notes.emplace_back("context parallelism is the program's own");
  if (job.recompute == jobs::Recompute::Op) {
    words.notes.emplace_back(
        "recompute=op: the contexts of selective checkpoints are the program's own");
  }
  return words;
}

Job fsdp2_as_run(const Job& job, const JobWords& /*words*/) {
  Job run = job;
  run.as = jobs::RunBy::Fsdp;
  run.prefetch = std::max<std::int64_t>(1, job.prefetch);
  jobs::Precision& p = run.precision;
  p.gradient = held(job.precision);
  p.master_bytes = p.gradient == p.compute ? 0 : 4;
  return run;
}

}  // namespace

JobWriter fsdp2_writer() {
  return {.id = "fsdp2",
          .title = "PyTorch FSDP2",
          .writes = "a job's mesh, fully_shard calls and prefetch lists",
          .paste = "from FILE import device_mesh, shard; shard(model, device_mesh())",
          .unsaid = {{"recompute_modules", "layers are computed again whole, or not"},
                     {"bucket", "FSDP2 reduces layer by layer"},
                     {"scaling", "narrow products are the model's code"},
                     {"prefetch", "FSDP2 gathers the next layer by itself"},
                     {"grads", "gradients are kept in the type in which the model is made"},
                     {"master", "parameters are held in one type, without a copy"}},
          .write = write_fsdp2,
          .as_run = fsdp2_as_run};
}

}  // namespace dovetail::frameworks
