"""How long one kernel takes: the median over replays of a CUDA graph, so that the host is not seen.

    meter = Meter("cuda", seconds=120)
    sets = [meter.normal(8192, 4096) for _ in range(meter.copies(8192 * 4096 * 2))]
    meter.us([lambda x=x: torch.nn.functional.silu(x) for x in sets])      # of one call

Calls go round over inputs that are together several times as large as the L2 cache, and so do what they return. All numbers
are normal random ones: a product of zeros takes less power than others. What cannot be captured is timed by events over
calls that follow each other, and is named (Meter.uncaptured). On processors, for tests, it is the clock around the calls.

SPDX-License-Identifier: Apache-2.0
"""

import collections
import statistics
import time

import torch

REPLAYS = 5
TARGET_US = 2000  # of one replay
MOST_CALLS = 60   # in one graph
MOST_COPIES = 16
USUAL_CACHE = 128 << 20  # of a PyTorch that does not tell it: as large as any until B200


class Meter:
    def __init__(self, kind, seconds):
        self.device, self.is_gpu = torch.device(kind), kind == "cuda"
        self.ends = time.monotonic() + seconds
        self.uncaptured = set()
        # Processors multiply bf16 a hundred times slower than f32, in some versions.
        self.half = torch.bfloat16 if self.is_gpu else torch.float32
        self.cache = 0
        if self.is_gpu:
            self.cache = getattr(torch.cuda.get_device_properties(self.device), "L2_cache_size", 0) or USUAL_CACHE
            # One stream for everything: backward runs where forward did, and that one is captured.
            self.stream = torch.cuda.Stream()
            torch.cuda.set_stream(self.stream)

    def left(self):
        """Seconds."""
        return self.ends - time.monotonic()

    def normal(self, *shape, dtype=None, grad=False):
        return torch.randn(*shape, device=self.device, dtype=dtype or self.half).requires_grad_(grad)

    def whole(self, below, count):
        return torch.randint(0, below, (count,), device=self.device)

    def copies(self, size):
        """How many inputs of so many bytes are several times as large as the cache."""
        return max(1, min(MOST_COPIES, -(-4 * self.cache // max(1, size))))

    def wait(self):
        if self.is_gpu:
            torch.cuda.synchronize()

    def release(self):
        """Memory that was used once and no more, where it is much."""
        if self.is_gpu and 2 * torch.cuda.memory_reserved() > torch.cuda.get_device_properties(self.device).total_memory:
            torch.cuda.empty_cache()

    def us(self, calls, name="", captured=True):
        """The median time of one call. Calls go in turn. `name` says what it is where it cannot be captured."""
        once = self._alone(calls)
        count = max(len(calls), min(MOST_CALLS, int(TARGET_US / max(once, 1))))
        if self.is_gpu and captured:
            try:
                return self._replayed(calls, count)
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise
                self.wait()
                self.uncaptured.add(name)
        # One call first, behind which the host is ahead of the device.
        return statistics.median(self._between(lambda: self._call(calls, count), before=calls[0])
                                 for _ in range(REPLAYS)) / count

    def _alone(self, calls):
        """Of one call, once all have run, so that what they compile, allocate and choose is there."""
        for call in calls:
            call()
        self.wait()
        return self._between(calls[0])

    @staticmethod
    def _call(calls, count):
        kept = collections.deque(maxlen=len(calls))
        for index in range(count):
            kept.append(calls[index % len(calls)]())

    def _replayed(self, calls, count):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self._call(calls, count)
        graph.replay()
        return statistics.median(self._between(graph.replay) for _ in range(REPLAYS)) / count

    def _between(self, run, before=None):
        """us from its beginning to its end, on the device."""
        self.wait()
        if before:
            before()
        if not self.is_gpu:
            start = time.perf_counter()
            run()
            return 1e6 * (time.perf_counter() - start)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        self.wait()
        return 1e3 * start.elapsed_time(end)


def is_out_of_memory(error):
    known = getattr(torch.cuda, "OutOfMemoryError", None)
    return (known is not None and isinstance(error, known)) or "out of memory" in str(error) or "can't allocate" in str(error)


def fixed_and_rate(points):
    """(us, amount per us) of amounts and us: the line with the least squares of relative errors. Where that begins below
    zero it begins at zero; where it does not rise, the largest amount alone tells."""
    weights = [1 / us ** 2 for _, us in points]
    total = sum(weights)
    mean_amount = sum(w * amount for w, (amount, _) in zip(weights, points)) / total
    mean_us = sum(w * us for w, (_, us) in zip(weights, points)) / total
    spread = sum(w * (amount - mean_amount) ** 2 for w, (amount, _) in zip(weights, points))
    rise = sum(w * (amount - mean_amount) * (us - mean_us) for w, (amount, us) in zip(weights, points))
    if spread <= 0 or rise <= 0:
        amount, us = max(points)
        return 0.0, amount / us
    fixed = mean_us - rise / spread * mean_amount
    if fixed >= 0:
        return fixed, spread / rise
    return 0.0, (sum(w * amount ** 2 for w, (amount, _) in zip(weights, points)) /
                 sum(w * amount * us for w, (amount, us) in zip(weights, points)))
