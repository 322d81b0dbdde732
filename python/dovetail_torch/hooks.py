"""A plan carried out without DDP: own flat buckets, gradient hooks, and collectives of torch.distributed.

What DDP cannot do stands here: buckets that are waited for where their parameters are updated, reduce-scatter with
sharded updates, several process groups and streams, gradients cut over buckets, launch points, thread blocks per
bucket. What is kept of DDP: parameters and buffers are broadcast from rank 0 at the start, buffers before each
forward; no_sync(); sums are divided by the group's size before they are sent, as DDP does it, so with two ranks
weights stay bit for bit those of DDP. What is not there: unused parameters (an error), sparse gradients, Join, mixed
precision inside the wrapper, communication hooks.

SPDX-License-Identifier: Apache-2.0
"""

import contextlib
import types

import torch
import torch.distributed as dist

from dovetail_torch.plan import PlanError, PlanMismatch


class _Flat:
    """The memory of one bucket and where it stands in the step."""

    def __init__(self, number, bucket, group, parameters):
        self.number, self.bucket, self.group = number, bucket, group
        self.size = dist.get_world_size(group)
        self.rank = dist.get_rank(group)
        self.is_sharded = bucket.collective == "reduce-scatter"
        first = parameters[bucket.parts[0].parameter]
        elements = sum(part.count for part in bucket.parts)
        self.elements = elements
        if self.is_sharded:
            elements += -elements % self.size
        self.buffer = torch.zeros(elements, dtype=first.dtype, device=first.device)
        self.views = []  # (parameter, first, count, view of the buffer)
        at = 0
        for part in bucket.parts:
            self.views.append((parameters[part.parameter], part.first, part.count, self.buffer[at:at + part.count]))
            at += part.count
        self.shard = self.buffer
        if self.is_sharded:
            share = elements // self.size
            self.shard = self.buffer[self.rank * share:(self.rank + 1) * share]
        self.weights = None  # of a sharded bucket: the parameters in one piece
        self.pieces = []     # of them, those that this rank updates
        self.copies = []     # (parameter, first, count, place): parts of parameters that are cut over buckets
        self.missing = len(bucket.parts)
        self.work = None      # of the reduction
        self.gathering = None
        self.is_waited = False

    def launched(self):
        return self.work is not None


class PlannedModel(torch.nn.Module):
    """The module of apply(form="hooks"). Use it as one uses DistributedDataParallel."""

    def __init__(self, module, plan, parameters, groups, optimizer=None, broadcast_buffers=True, check_steps=True,
                 say=lambda text: None, forward_sync_buffers=None):
        super().__init__()
        self.module = module
        self.require_backward_grad_sync = True
        self._plan, self._say, self._optimizer = plan, say, optimizer
        self._parameters_by_name = parameters
        # PyTorch 2.13 gave the option another name.
        self._broadcast_buffers = broadcast_buffers if forward_sync_buffers is None else forward_sync_buffers
        self._check_steps = check_steps
        self._steps = 0       # backward passes that were reduced
        self._sent = []       # (bucket, bytes) of this step, in launch order
        self._last_sent = None
        self._ready = []      # names, in the order of this step
        self._last_ready = None
        self._next = 0        # the bucket that is launched next
        self._ended = True    # no backward is under way
        self._arrived = set()
        self._keep = []       # gradient accumulators, whose hooks live as long as they do
        waits = {bucket.wait for bucket in plan.buckets}
        shards = any(bucket.collective == "reduce-scatter" for bucket in plan.buckets)
        if optimizer is None and ("first-use" in waits or shards):
            raise PlanError("the plan " + ("shards updates" if shards else "waits at first use") +
                            ": pass optimizer=, so that its step can go bucket by bucket")
        self._sync_state(module, parameters)
        groups = self._groups_by_stream(plan, groups)
        self._flats = [_Flat(number, bucket, groups[bucket.group, bucket.stream, bucket.max_ctas], parameters)
                       for number, bucket in enumerate(plan.buckets)]
        self._of = {}  # parameter's name -> flats that hold parts of it
        for flat in self._flats:
            for name in flat.bucket.names:
                self._of.setdefault(name, []).append(flat)
        self._split = {name for name, flats in self._of.items() if len(flats) > 1}
        self._has_batches = "before-next-batch" in waits
        self._chunked, self._chunks, self._rest = None, [], []  # of the optimizer: _divide
        self._attach_views()
        self._register_hooks(parameters)
        if shards:
            self._shard_parameters(parameters)
        if optimizer is not None:
            self._take_over(optimizer)

    # ---- set-up

    @staticmethod
    def _sync_state(module, parameters):
        """Rank 0's values everywhere, after the shapes were compared."""
        shapes = [(name, tuple(p.shape), str(p.dtype)) for name, p in parameters.items()]
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, shapes)
        for rank, other in enumerate(everyone):
            if other != everyone[0]:
                raise PlanError(f"rank {rank}'s parameters are not rank 0's")
        with torch.no_grad():
            for tensor in list(module.parameters()) + list(module.buffers()):
                dist.broadcast(tensor.data, 0)

    def _groups_by_stream(self, plan, groups):
        """A process group of its own for every (group, stream, limit of thread blocks): each has its own queue."""
        made = {}
        for bucket in plan.buckets:
            key = (bucket.group, bucket.stream, bucket.max_ctas)
            if key in made:
                continue
            given = groups[bucket.group]
            is_first = not any(group == bucket.group for group, _, _ in made)
            if is_first and bucket.max_ctas == 0:
                made[key] = given
                continue
            made[key] = self._new_group(plan.groups[bucket.group], bucket.max_ctas)
        return made

    def _new_group(self, ranks, max_ctas):
        options = None
        if max_ctas and dist.get_backend() == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            if hasattr(options, "config"):
                options.config.max_ctas = max_ctas
            else:
                options = None
        if max_ctas and options is None:
            self._say(f"at most {max_ctas} thread blocks: {dist.get_backend()} of this PyTorch cannot be limited, left out")
        return dist.new_group(list(ranks), pg_options=options) if options else dist.new_group(list(ranks))

    def _attach_views(self):
        """Gradients of view buckets live in the bucket."""
        for flat in self._flats:
            if flat.bucket.mode != "view":
                continue
            for parameter, _, _, view in flat.views:
                parameter.grad = view.view(parameter.shape)

    def _register_hooks(self, parameters):
        for name, parameter in parameters.items():
            if hasattr(parameter, "register_post_accumulate_grad_hook"):
                parameter.register_post_accumulate_grad_hook(lambda _p, name=name: self._on_gradient(name))
                continue
            accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            accumulator.register_hook(lambda *_unused, name=name: self._on_gradient(name))
            self._keep.append(accumulator)

    # ---- one step

    def forward(self, *inputs, **options):
        if torch.is_grad_enabled() and self.training and self.require_backward_grad_sync:
            if self._check_steps and self._steps == 2 and self._ended:
                self._check_steps = False
                self.check()
            if self._broadcast_buffers:
                with torch.no_grad():
                    for buffer in self.module.buffers():
                        dist.broadcast(buffer, 0)
        return self.module(*inputs, **options)

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients of forward and backward inside are only summed up, as with DDP."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def _on_gradient(self, name):
        if not self.require_backward_grad_sync:
            return
        if self._ended:
            self._begin()
        self._ready.append(name)
        self._arrived.add(name)
        for flat in self._of[name]:
            flat.missing -= 1
        self._launch_what_may()

    def _begin(self):
        """At the first gradient of a backward."""
        self._ended = False
        self._sent, self._ready, self._next = [], [], 0
        self._arrived.clear()
        for flat in self._flats:
            if flat.work is not None and not flat.is_waited:
                raise PlanMismatch("a backward began before the last one's gradients were used: step the optimizer, or "
                                   "use no_sync() for micro-steps")
            flat.missing, flat.work, flat.is_waited = len(flat.bucket.parts), None, False
        torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _launch_what_may(self, is_end=False):
        while self._next < len(self._flats) and self._may_launch(self._flats[self._next], is_end):
            self._launch(self._flats[self._next])
            self._next += 1

    def _may_launch(self, flat, is_end):
        if flat.missing > 0:
            return False
        launch = flat.bucket.launch
        if launch == "when-ready":
            return True
        if launch == "after-backward":
            return is_end
        kind, what = launch
        if kind == "after":
            return what in self._arrived
        return all(other.missing == 0 for other in self._flats if other.bucket.launch == launch)

    def _launch(self, flat):
        for earlier in self._flats[:flat.number] if self._has_batches else ():
            if earlier.bucket.wait == "before-next-batch" and earlier.bucket.launch != flat.bucket.launch:
                self._wait(earlier)
        scale = 1.0 / flat.size
        if flat.bucket.mode == "view":
            self._reattach(flat)
            flat.buffer.mul_(scale)
        else:
            for parameter, first, count, view in flat.views:
                torch.mul(parameter.grad.reshape(-1)[first:first + count], scale, out=view)
        self._sent.append((flat.number, flat.elements * flat.buffer.element_size()))
        flat.work = self._reduce(flat)
        if flat.bucket.stream == "inline" or flat.bucket.wait == "at-launch":
            self._wait(flat)

    @staticmethod
    def _reattach(flat):
        """zero_grad(set_to_none=True) elsewhere takes a gradient out of its bucket; it is put back."""
        for parameter, _, _, view in flat.views:
            if parameter.grad.data_ptr() != view.data_ptr():
                view.copy_(parameter.grad.reshape(-1))
                parameter.grad = view.view(parameter.shape)

    def _reduce(self, flat):
        if not flat.is_sharded:
            return dist.all_reduce(flat.buffer, group=flat.group, async_op=True)
        if dist.get_backend(flat.group) == "gloo":
            if flat.number == 0 and self._steps == 0:
                self._say("gloo has no reduce-scatter: an all-reduce of which one shard is used; its time means nothing")
            return dist.all_reduce(flat.buffer, group=flat.group, async_op=True)
        scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
        return scatter(flat.shard, flat.buffer, group=flat.group, async_op=True)

    def _wait(self, flat):
        if flat.is_waited or flat.work is None:
            return
        flat.work.wait()
        flat.is_waited = True
        if flat.bucket.mode == "view" or flat.is_sharded:
            return
        for parameter, first, count, view in flat.views:
            parameter.grad.view(-1)[first:first + count].copy_(view)

    def _end(self):
        """Called by autograd when backward has ended."""
        self._launch_what_may(is_end=True)
        if self._next < len(self._flats):
            lost = [name for name in self._flats[self._next].bucket.names if name not in self._arrived]
            raise PlanMismatch(f"bucket {self._next} was never launched: {', '.join(lost[:3]) or 'its launch point'} got "
                               "no gradient; unused parameters need DDP")
        for flat in self._flats:
            if flat.bucket.wait != "first-use":
                self._wait(flat)
        self._ended = True
        self._steps += 1
        self._last_sent, self._last_ready = self._sent, self._ready

    def wait(self):
        """Waits for all buckets now: before gradients are clipped or looked at."""
        for flat in self._flats:
            self._wait(flat)

    # ---- the optimizer

    def _take_over(self, optimizer):
        """step() goes bucket by bucket, each after its wait; zero_grad() keeps gradients in their buckets."""
        known = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for name, parameter in self._parameters_by_name.items():
            if id(parameter) not in known and not any(flat.is_sharded for flat in self._of[name]):
                raise PlanError(f"the optimizer does not update {name}")
        whole_step, model = optimizer.step, self

        def step(self, closure=None):
            if closure is not None:
                raise PlanError("step(closure) cannot go bucket by bucket")
            return model._step(self, whole_step)

        def zero_grad(self, set_to_none=False):
            model.zero_grad()

        optimizer.step = types.MethodType(step, optimizer)
        optimizer.zero_grad = types.MethodType(zero_grad, optimizer)

    def _step(self, optimizer, whole_step):
        groups = optimizer.param_groups
        members = [group["params"] for group in groups]
        if self._chunked != [len(params) for params in members]:
            self._divide(groups, members)
        try:
            for flat, chunk in zip(self._flats, self._chunks):
                self._wait(flat)
                if chunk:
                    self._step_on(optimizer, chunk, whole_step)
                if flat.is_sharded:
                    self._gather(flat)
            if self._rest:
                self._step_on(optimizer, self._rest, whole_step)
        finally:
            optimizer.param_groups = groups
            for group, params in zip(groups, members):
                group["params"] = params
        if self._plan.gather == "after-update":
            for flat in self._flats:
                self._finish_gather(flat)

    def _divide(self, groups, members):
        """Which parameters each bucket completes, by the optimizer's groups: [(group, parameters)] per bucket."""
        completes = {}  # id -> flat; of a gradient that is cut over buckets the last one
        for flat in self._flats:
            for thing in flat.pieces if flat.is_sharded else (parameter for parameter, _, _, _ in flat.views):
                completes[id(thing)] = flat
        def chunk(flat):
            chosen = [(group, [p for p in params if completes.get(id(p)) is flat]) for group, params in zip(groups, members)]
            return [(group, params) for group, params in chosen if params]
        self._chunks = [chunk(flat) for flat in self._flats]
        self._rest = chunk(None)
        self._chunked = [len(params) for params in members]

    @staticmethod
    def _step_on(optimizer, chunk, whole_step):
        for group, params in chunk:
            group["params"] = params
        optimizer.param_groups = [group for group, _ in chunk]
        whole_step()

    def zero_grad(self, set_to_none=False):
        """Gradients become 0 and stay in their buckets, whatever set_to_none says; copied ones are dropped."""
        for flat in self._flats:
            if flat.bucket.mode == "view":
                flat.buffer.zero_()
                for parameter, _, _, view in flat.views:
                    if parameter.grad is None or parameter.grad.data_ptr() != view.data_ptr():
                        parameter.grad = view.view(parameter.shape)
            else:
                for parameter, _, _, _ in flat.views:
                    parameter.grad = None

    # ---- sharded updates

    def _shard_parameters(self, parameters):
        """Parameters of a sharded bucket lie in one piece of memory; the optimizer updates this rank's shard of it.

        A parameter that is cut over buckets keeps its own memory; its parts are copied there after each gather.
        """
        cut = {id(self._parameters_by_name[name]) for name in self._split}
        if self._optimizer.state:
            raise PlanError("the optimizer has state already: shard before its first step")
        replace = {}
        for flat in self._flats:
            flat.pieces, flat.copies = [], []
            if not flat.is_sharded:
                continue
            flat.weights = torch.zeros_like(flat.buffer)
            share = flat.buffer.numel() // flat.size
            low, high = flat.rank * share, (flat.rank + 1) * share
            at = 0
            for parameter, first, count, _ in flat.views:
                place = flat.weights[at:at + count]
                place.copy_(parameter.data.reshape(-1)[first:first + count])
                if id(parameter) in cut:
                    flat.copies.append((parameter, first, count, place))
                else:
                    parameter.data = place.view(parameter.shape)
                begin, end = max(at, low), min(at + count, high)
                pieces = replace.setdefault(id(parameter), [])
                if begin < end:
                    piece = torch.nn.Parameter(flat.weights[begin:end])
                    piece.grad = flat.buffer[begin:end]
                    flat.pieces.append(piece)
                    pieces.append(piece)
                at += count
        for group in self._optimizer.param_groups:
            group["params"] = [piece for p in group["params"] for piece in replace.get(id(p), [p])]
        if self._plan.gather == "next-forward":
            self._gather_before_use(parameters)

    def _gather_before_use(self, parameters):
        """A module waits for the gathers of its own parameters before its forward."""
        name_of = {id(parameter): name for name, parameter in parameters.items()}
        for module in self.module.modules():
            flats = {flat for p in module.parameters(recurse=False) if id(p) in name_of
                     for flat in self._of[name_of[id(p)]] if flat.is_sharded}
            if flats:
                module.register_forward_pre_hook(
                    lambda _module, _inputs, flats=flats: [self._finish_gather(flat) for flat in flats] and None)

    def _gather(self, flat):
        share = flat.weights.numel() // flat.size
        mine = flat.weights[flat.rank * share:(flat.rank + 1) * share]
        flat.sent_shard = mine.clone()
        if dist.get_backend(flat.group) == "gloo":
            pieces = list(flat.weights.split(share))
            flat.gathering = dist.all_gather(pieces, flat.sent_shard, group=flat.group, async_op=True)
            return
        gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
        flat.gathering = gather(flat.weights, flat.sent_shard, group=flat.group, async_op=True)

    @staticmethod
    def _finish_gather(flat):
        if flat.gathering is not None:
            flat.gathering.wait()
            flat.gathering = None
            for parameter, first, count, place in flat.copies:
                parameter.data.view(-1)[first:first + count].copy_(place)

    def state_dict(self, *arguments, **options):
        """With all parameters complete on every rank."""
        for flat in self._flats:
            self._finish_gather(flat)
        return super().state_dict(*arguments, **options)

    # ---- the check

    def check(self):
        """Compares the last step with the plan: what was sent, in which order. Raises PlanMismatch on every rank."""
        problems = []
        expected = [(number, bucket.bytes) for number, bucket in enumerate(self._plan.buckets)]
        if self._last_sent != expected:
            problems.append(f"sent were {self._last_sent} (bucket, bytes), planned {expected}")
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, problems)
        for rank, found in enumerate(everyone):
            if found:
                raise PlanMismatch(f"{self._plan.source} is not what was run (rank {rank}): {'; '.join(found)}")
        if self._last_ready != self._plan.ready_order:
            first = next(k for k, (a, b) in enumerate(zip(self._last_ready, self._plan.ready_order)) if a != b)
            self._say(f"gradients become ready in another order than when the plan was made: number {first} is "
                      f"{self._last_ready[first]}, then it was {self._plan.ready_order[first]}")
        text = f"checked after step {self._steps}: {len(expected)} buckets of {[b for _, b in expected]} bytes sent, as planned"
        self._say(text)
        return text
