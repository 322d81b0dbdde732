# For PyTorch FSDP2: a job's mesh, fully_shard calls and prefetch lists.
#   written by  dovetail 0 from llama3_8b:dp=2,dp_shard=8,seq=8192,gbs=64,reshard=no,recompute=full
#   ranks       16
#   memory      52.2 GiB a rank as it is run there (predicted)
#   note        the optimizer is the program's own, and is made after shard()

MESH = {"pp": 1, "dp_replicate": 2, "fsdp": 8, "tp": 1}
HELD_DTYPE = "float32"
PARAM_DTYPE = "bfloat16"
REDUCE_DTYPE = "float32"
RESHARD_AFTER_FORWARD = False
PREFETCH = 1  # layers ahead
RECOMPUTED_LAYERS = 32  # of each virtual stage
MICRO_BATCHES = 4
SYNC_EACH = True  # or whole gradients stay until the last
TIED = False  # embedding and head are one weight


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
