// Fully sharded data parallelism (ZeRO-3, PyTorch FSDP): between its uses a rank keeps only its shard
// of every parameter.
//
// Gradients are grouped into blocks, by layer (blocks=layer: what lies under one numbered module, else
// one module) or until a block reaches a size (cap=25MiB). For each block:
//   forward   all-gather of its parameters, wait before the first reader, free behind the last
//   backward  the same again; then a reduce-scatter of its gradients
//   update    of the rank's shard
// With forward=N the parameters of a block are gathered N blocks ahead: as soon as the compute stream
// reaches the first op of the block that is needed N blocks earlier. backward=N is the same in backward,
// prefetch=N both; 0 gathers at the last moment and exposes all of it. A gather waits longer where
// memory= (bytes) or limit= (blocks) would not hold otherwise.
//
//   fsdp:forward=1,backward=1,memory=200MiB
//   s0 |F0  F1  F2  B2  B1  B0 |update          F forward, B backward of block 0, 1, 2
//   s1 |g0 g1 g2   g1 r2 g0 r1 |r0              g gather, r reduce-scatter
//
// The block that ends forward and begins backward is not freed in between: it would be gathered again
// at once. reshard=no keeps every block from forward to backward (ZeRO-2, SHARD_GRAD_OP).
// mode=view: gradients and parameters lie in flat buffers (FSDP1); mode=copy: both are copied in and out
// (FSDP2). streams=2 gives the gathers a communicator of their own.
//
// Refused, with the reason: what sharded updates refuse (policies/sharded.h), parameters that no op
// reads, limits that one block alone exceeds, pipelines.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "policies/policies.h"

namespace dovetail::schedule {

PolicyResult fsdp(const Program& program, const PolicySpec& spec);

}  // namespace dovetail::schedule
