// One pass over the events finds backward passes, the optimizer's steps and forward's launches; windows are then cut at
// moments of the host's time.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/iterations.h"

#include "base/error.h"
#include "recordings/names.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace dovetail::imports {
namespace {

constexpr std::string_view kProfilerStep = "ProfilerStep#";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// What DDP and c10d launch of their own accord is no forward.
constexpr std::uint64_t kOfReduction =
    bit(Is::Reducer) | bit(Is::Comms) | bit(Is::C10d) | bit(Is::LibraryRange);

// "Iteration", "Iteration 3", "Iteration#3" and "Iteration: 3" are called Iteration.
bool is_called(std::string_view name, std::string_view asked) {
  if (!name.starts_with(asked)) return false;
  name.remove_prefix(asked.size());
  const std::size_t digits = name.find_first_not_of(" #:_-");
  if (digits == std::string_view::npos) return name.empty();
  return std::ranges::all_of(name.substr(digits), is_digit);
}

enum class Role : std::uint8_t { None, Backward, Reduction, Optimizer };

struct Span {
  Instant begin, end;
};

// What a backward pass, or a piece of a window, reduced: equal ones are repetitions.
using Signature = std::vector<std::tuple<CollectiveKind, std::int64_t, std::string>>;

class IterationFinder {
 public:
  IterationFinder(const Recording& trace, const RankTimeline& line) : trace_(trace), line_(line) {}

  Iterations find(const std::string& asked) {
    judge_names();
    find_passes();
    sign_passes();
    find_accumulation();
    if (asked.empty()) {
      find_windows([](std::string_view name) { return name.starts_with(kProfilerStep); });
      if (windows_.empty()) return without_windows();
    } else {
      find_windows([&](std::string_view name) { return is_called(name, asked); });
      if (windows_.empty()) refuse(asked);
    }
    mark_gaps();
    join_accumulating_windows();
    for (const TracedStep& window : windows_) add_pieces_of(window);
    return std::move(found_);
  }

 private:
  [[nodiscard]] const RecordedEvent& event(std::int32_t number) const {
    return trace_.events[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] Role role(std::int32_t number) const {
    return roles_[static_cast<std::size_t>(event(number).name)];
  }

  void judge_names() {
    for (const std::uint64_t kinds : trace_.kinds) {
      roles_.push_back((kinds & bit(Is::Backward)) != 0        ? Role::Backward
                       : (kinds & bit(Is::OptimizerStep)) != 0 ? Role::Optimizer
                       : (kinds & kOfReduction) != 0           ? Role::Reduction
                                                               : Role::None);
      is_of_gradients_.push_back((kinds & bit(Is::OfGradients)) != 0 ? 1 : 0);
    }
  }

  // Innermost role around an event.
  [[nodiscard]] Role role_around(std::int32_t number) const {
    for (; number != kNone; number = line_.parent[static_cast<std::size_t>(number)]) {
      if (role(number) != Role::None) return role(number);
    }
    return Role::None;
  }

  // --- what the host did ---------------------------------------------------------------------------------

  // Kernels that neither backward nor the optimizer launched, on the thread that launched most of them.
  void find_forward() {
    std::map<std::int32_t, std::vector<std::int32_t>> by_thread;
    for (const HostCall& call : line_.calls) {
      if (call.kind != CallKind::Launch || call.first_work == kNone) continue;
      const GpuWork& work = line_.works[static_cast<std::size_t>(call.first_work)];
      if (work.collective != kNone || event(work.event).kind != EventKind::Kernel) continue;
      if (role_around(call.event) == Role::None) by_thread[call.thread].push_back(call.event);
    }
    for (auto& [thread, events] : by_thread) {
      if (events.size() > forward_.size()) forward_ = std::move(events);
    }
  }

  // Passes end where forward launches again. Only those with gradients count, where the trace has any: a gradient
  // penalty has its own passes within forward.
  void find_passes() {
    find_forward();
    const bool has_gradients = trace_.has(Is::AccumulateGrad);
    std::size_t next = 0;
    bool has_gradient = false;
    bool is_open = false;
    const auto close = [&] {
      if (is_open && has_gradients && !has_gradient) found_.passes.pop_back();
      is_open = has_gradient = false;
    };
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const RecordedEvent& now = trace_.events[i];
      if (next < forward_.size() && forward_[next] == static_cast<std::int32_t>(i)) {
        ++next;
        if (is_open && line_.instant(now.start_ns) >= found_.passes.back().end) close();
      }
      if (now.kind == EventKind::Annotation || now.kind == EventKind::Operator) {
        const Role here = role(static_cast<std::int32_t>(i));
        if (here == Role::Optimizer) add_optimizer(now);
        if (here != Role::Backward) continue;
        functions_[now.thread].push_back(static_cast<std::int32_t>(i));
        if (!is_open) found_.passes.push_back({line_.instant(now.start_ns), {}});
        is_open = true;
        has_gradient |= has_gradients && trace_.is(now, Is::AccumulateGrad);
        BackwardPass& pass = found_.passes.back();
        pass.end = std::max(pass.end, line_.instant(now.end_ns()));
      }
    }
    close();
  }

  // An optimizer that calls another one is one.
  void add_optimizer(const RecordedEvent& now) {
    const Span span{line_.instant(now.start_ns), line_.instant(now.end_ns())};
    if (!optimizers_.empty() && span.begin < optimizers_.back().end) {
      optimizers_.back().end = std::max(optimizers_.back().end, span.end);
    } else {
      optimizers_.push_back(span);
    }
  }

  [[nodiscard]] Instant launched_at(const TracedCollective& collective) const {
    const GpuWork& work = line_.works[static_cast<std::size_t>(collective.work)];
    return work.launch == kNone ? work.start
                                : line_.calls[static_cast<std::size_t>(work.launch)].start;
  }

  static Instant launch_time(const std::pair<Instant, const TracedCollective*>& launched) {
    return launched.first;
  }

  [[nodiscard]] Signature signature_of(Instant begin, Instant end) const {
    Signature signature;
    auto next = std::ranges::lower_bound(by_launch_, begin, {}, launch_time);
    for (; next != by_launch_.end() && next->first < end; ++next) {
      const TracedCollective& collective = *next->second;
      signature.emplace_back(collective.kind, collective.elements.value_or(0), collective.group);
    }
    return signature;
  }

  // Whether forward has launched again since the last pass before `at`.
  [[nodiscard]] bool is_of_forward(Instant at) const {
    const auto after = std::ranges::upper_bound(found_.passes, at, {}, &BackwardPass::begin);
    if (after == found_.passes.begin()) return true;
    const std::int64_t end = line_.origin_ns + (after - 1)->end.time_since_epoch().count();
    const auto launch = std::ranges::lower_bound(
        forward_, end, {}, [&](std::int32_t number) { return event(number).start_ns; });
    return launch != forward_.end() && line_.instant(event(*launch).start_ns) < at;
  }

  // Whether a collective reduces gradients: a hook of AccumulateGrad launched it (DDP, FSDP), or FSDP's own function behind
  // a module. What tensor parallelism reduces and experts exchange within backward are activations.
  [[nodiscard]] bool reduces_gradients(const TracedCollective& collective) const {
    using enum CollectiveKind;
    const GpuWork& work = line_.works[static_cast<std::size_t>(collective.work)];
    // NCCL's kernel for several kinds has none in its name.
    const bool can = collective.kind == AllReduce || collective.kind == ReduceScatter ||
                     collective.kind == Reduce ||
                     (collective.kind == Unknown && trace_.is(work.event, Is::OfLibrary));
    if (!can || work.launch == kNone) return false;
    const HostCall& call = line_.calls[static_cast<std::size_t>(work.launch)];
    if (is_of_forward(call.start)) return false;
    // The last of autograd's functions that began on its thread.
    const auto found = functions_.find(call.thread);
    if (found == functions_.end()) return false;
    const auto after = std::ranges::upper_bound(found->second, call.event);
    return after != found->second.begin() &&
           is_of_gradients_[static_cast<std::size_t>(event(*(after - 1)).name)] != 0;
  }

  // Where no hook reduces (DeepSpeed's stage 1 and Horovod may do so behind backward) a pass has all that was launched up to
  // the next one, and it is not known whether it reduces.
  void sign_passes() {
    for (const TracedCollective& collective : line_.collectives) {
      if (!reduces_gradients(collective)) continue;
      by_launch_.emplace_back(launched_at(collective), &collective);
    }
    has_reductions_ = !by_launch_.empty();
    if (!has_reductions_) {
      for (const TracedCollective& collective : line_.collectives) {
        by_launch_.emplace_back(launched_at(collective), &collective);
      }
    }
    std::ranges::stable_sort(by_launch_, {}, launch_time);
    std::vector<BackwardPass>& passes = found_.passes;
    for (std::size_t p = 0; p < passes.size(); ++p) {
      const bool is_last = p + 1 == passes.size();
      signatures_.push_back(
          signature_of(passes[p].begin, is_last ? Instant::max() : passes[p + 1].begin));
      passes[p].reduces = has_reductions_ && !signatures_[p].empty();
    }
  }

  // The last step of the optimizer that began in [from, to).
  [[nodiscard]] const Span* optimizer_in(Instant from, Instant to) const {
    const auto after = std::ranges::lower_bound(optimizers_, to, {}, &Span::begin);
    if (after == optimizers_.begin() || (after - 1)->begin < from) return nullptr;
    return &*(after - 1);
  }

  // Passes up to each step of the optimizer. The first group may have begun before the trace: it counts where it is the
  // only one.
  void find_accumulation() {
    struct Group {
      std::int64_t passes = 0, reducing = 0;
      bool alike = true;  // all that reduce, reduce the same
    };
    std::vector<Group> groups(1);
    const Signature* before = nullptr;
    const std::vector<BackwardPass>& passes = found_.passes;
    for (std::size_t p = 0; p < passes.size(); ++p) {
      Group& group = groups.back();
      ++group.passes;
      if (passes[p].reduces) {
        ++group.reducing;
        group.alike &= before == nullptr || *before == signatures_[p];
        before = &signatures_[p];
      }
      const bool is_last = p + 1 == passes.size();
      if (optimizer_in(passes[p].end, is_last ? Instant::max() : passes[p + 1].begin) != nullptr) {
        groups.emplace_back();
        before = nullptr;
      }
    }
    groups.pop_back();  // nothing, or passes without their optimizer
    if (groups.empty()) return;
    const bool has_whole = groups.size() > 1;
    std::vector<Group> whole(groups.begin() + (has_whole ? 1 : 0), groups.end());
    std::ranges::sort(whole, {}, &Group::passes);
    const Group& middle = whole[whole.size() / 2];
    if (!middle.alike) return;  // several models
    found_.accumulation = {middle.passes, std::max<std::int64_t>(1, middle.reducing)};
  }

  // --- windows -------------------------------------------------------------------------------------------------

  template <class Wanted>
  void find_windows(const Wanted& wanted) {
    std::vector<signed char> known(trace_.names.size(), -1);
    for (const RecordedEvent& now : trace_.events) {
      if (now.kind != EventKind::Annotation && now.kind != EventKind::Operator) continue;
      signed char& is = known[static_cast<std::size_t>(now.name)];
      if (is < 0) is = wanted(trace_.name_of(now)) ? 1 : 0;
      if (is == 0) continue;
      TracedStep step;
      step.name = trace_.name_of(now);
      const std::size_t digits = step.name.find_last_not_of("0123456789") + 1;
      std::from_chars(step.name.data() + digits, step.name.data() + step.name.size(), step.number);
      step.start = line_.instant(now.start_ns);
      step.end = line_.instant(now.end_ns());
      // A second annotation of the same moments (another thread's) adds nothing.
      if (!windows_.empty() && step.start < windows_.back().end) continue;
      windows_.push_back(std::move(step));
    }
  }

  // Numbers that are not in the file: the next window is not the next step. The profiler counts by one, others by whatever they do.
  void mark_gaps() {
    const bool counts_by_one =
        !windows_.empty() && windows_.front().name.starts_with(kProfilerStep);
    std::int64_t stride = counts_by_one ? 1 : 0;
    for (std::size_t w = 0; w + 1 < windows_.size() && !counts_by_one; ++w) {
      const std::int64_t apart = windows_[w + 1].number - windows_[w].number;
      if (apart > 0) stride = stride == 0 ? apart : std::min(stride, apart);
    }
    std::int64_t gaps = 0;
    for (std::size_t w = 0; w + 1 < windows_.size(); ++w) {
      const std::int64_t apart = windows_[w + 1].number - windows_[w].number;
      windows_[w].is_before_gap = apart < 0 || (stride > 0 && apart > stride);
      if (!windows_[w].is_before_gap || ++gaps > 3) continue;
      found_.notes.push_back("between " + windows_[w].name + " and " + windows_[w + 1].name +
                             " steps are not in the file: the first takes what it took by itself");
    }
    if (gaps > 3) {
      found_.notes.push_back("steps are not in the file behind " + std::to_string(gaps - 3) +
                             " more");
    }
  }

  [[noreturn]] void refuse(const std::string& asked) const {
    std::map<std::string_view, std::int64_t> seen;
    for (const RecordedEvent& now : trace_.events) {
      const std::string& name = trace_.name_of(now);
      const std::uint64_t kinds = trace_.kinds[static_cast<std::size_t>(now.name)];
      if (now.kind != EventKind::Annotation || (kinds & kOfReduction) != 0) continue;
      ++seen[name];
    }
    std::vector<std::pair<std::int64_t, std::string_view>> names;
    for (const auto& [name, count] : seen) names.emplace_back(count, name);
    std::ranges::stable_sort(names, std::ranges::greater{}, [](const auto& n) { return n.first; });
    std::string listed;
    for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 8); ++i) {
      listed += (i == 0 ? "; there are " : ", ") + std::string(names[i].second);
    }
    if (names.empty() && trace_.recorder == Recorder::Nsys) {
      listed =
          ": it has no NVTX ranges; mark the steps (torch.cuda.nvtx.range_push(\"iteration\") ... "
          "range_pop()) and record with -t cuda,nvtx";
    }
    throw InputError(trace_.file + ": no annotation is called \"" + asked + "\"" + listed);
  }

  // What would have said where steps begin.
  [[nodiscard]] std::string no_annotation() const {
    return trace_.recorder == Recorder::Nsys ? "no --step, which names the NVTX ranges of steps"
                                             : "no ProfilerStep annotation";
  }

  [[nodiscard]] bool reduces(const TracedStep& window) const {
    auto pass = std::ranges::lower_bound(found_.passes, window.start, {}, &BackwardPass::begin);
    for (; pass != found_.passes.end() && pass->begin < window.end; ++pass) {
      if (pass->reduces) return true;
    }
    return false;
  }

  // Where the profiler steps with each micro-step and not all of them reduce, an iteration is the windows up to one that
  // does.
  void join_accumulating_windows() {
    const Accumulation& found = found_.accumulation;
    if (!has_reductions_ || found.passes <= found.reducing ||
        std::ranges::none_of(windows_, [&](const auto& window) { return !reduces(window); })) {
      return;
    }
    std::vector<TracedStep> joined;
    bool is_open = false;
    for (TracedStep& window : windows_) {
      const bool ends = reduces(window);
      if (!is_open) {
        joined.push_back(std::move(window));
      } else {
        TracedStep& whole = joined.back();
        whole.end = window.end;
        whole.is_before_gap = window.is_before_gap;
        if (ends) whole.name += " to " + window.name;
      }
      is_open = !ends;
      // The rest of what accumulates is not in the file.
      if (is_open && joined.back().is_before_gap) {
        is_open = false;
        joined.pop_back();
        if (!joined.empty()) joined.back().is_before_gap = true;
      }
    }
    if (is_open && joined.size() > 1) joined.pop_back();
    windows_ = std::move(joined);
    found_.notes.push_back("gradients are accumulated over " + std::to_string(found.passes) +
                           " backward passes: the steps up to one that reduces count as one");
  }

  // --- pieces of a window --------------------------------------------------------------------------------------

  // Where the next pass's iteration begins: the outermost event of the host that began behind this pass and its
  // optimizer and launched forward's first kernel.
  [[nodiscard]] Instant cut_before(std::size_t next) const {
    const std::vector<BackwardPass>& passes = found_.passes;
    Instant after = passes[next - 1].end;
    if (const Span* optimizer = optimizer_in(after, passes[next].begin)) after = optimizer->end;
    const std::int64_t from = line_.origin_ns + after.time_since_epoch().count();
    const auto launch = std::ranges::lower_bound(
        forward_, from, {}, [&](std::int32_t number) { return event(number).start_ns; });
    if (launch == forward_.end() || line_.instant(event(*launch).start_ns) >= passes[next].begin) {
      return after;
    }
    std::int32_t first = *launch;
    while (true) {
      const std::int32_t around = line_.parent[static_cast<std::size_t>(first)];
      if (around == kNone || event(around).start_ns < from) break;
      first = around;
    }
    return line_.instant(event(first).start_ns);
  }

  // Passes that reduce the same follow each other after `period` of them; 0: they do not repeat. The first and the last
  // may be incomplete.
  [[nodiscard]] static std::size_t period_of(const std::vector<const Signature*>& signatures) {
    const std::size_t count = signatures.size();
    for (std::size_t period = 1; period * 2 <= count; ++period) {
      std::size_t alike = 0;
      std::size_t others = 0;
      for (std::size_t i = 0; i + period < count; ++i) {
        const bool same = *signatures[i] == *signatures[i + period];
        const bool at_end = count > 2 * period && (i == 0 || i + period + 1 == count);
        if (same) ++alike;
        if (!same && !at_end) ++others;
      }
      if (others == 0 && alike > 0) return period;
    }
    return 0;
  }

  struct Piece {
    Instant begin, end;
    Signature signature;
    bool has_optimizer = false;
  };

  // The window in pieces of one reducing pass each.
  [[nodiscard]] std::vector<Piece> pieces_of(Instant begin, Instant end) const {
    const std::vector<BackwardPass>& passes = found_.passes;
    std::vector<Piece> pieces;
    Instant from = begin;
    const auto first = std::ranges::lower_bound(passes, begin, {}, &BackwardPass::begin);
    for (auto p = static_cast<std::size_t>(first - passes.begin());
         p < passes.size() && passes[p].begin < end; ++p) {
      const bool is_last = p + 1 == passes.size() || passes[p + 1].begin >= end;
      const Instant to = is_last ? end : cut_before(p + 1);
      const bool optimizes = optimizer_in(passes[p].begin, to) != nullptr;
      // Passes that accumulate only belong to the next one.
      const bool is_complete =
          has_reductions_ ? passes[p].reduces : optimizes || optimizers_.empty();
      if (!is_complete && !is_last) continue;
      pieces.push_back({from, to, signatures_[p], optimizes});
      from = to;
    }
    return pieces;
  }

  // Of several models in turn, as many pieces as there are models make an iteration.
  [[nodiscard]] static std::vector<Piece> joined(std::vector<Piece> pieces, std::size_t period) {
    if (period == 1) return pieces;
    std::vector<Piece> result;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (i % period == 0) {
        result.push_back(std::move(pieces[i]));
        continue;
      }
      result.back().end = pieces[i].end;
      result.back().has_optimizer |= pieces[i].has_optimizer;
      result.back().signature.insert(result.back().signature.end(), pieces[i].signature.begin(),
                                     pieces[i].signature.end());
    }
    return result;
  }

  [[nodiscard]] static std::size_t period_of(const std::vector<Piece>& pieces) {
    std::vector<const Signature*> signatures;
    for (const Piece& piece : pieces) signatures.push_back(&piece.signature);
    return period_of(signatures);
  }

  void add_pieces_of(const TracedStep& window) {
    std::vector<Piece> pieces = pieces_of(window.start, window.end);
    // Where it is not known what reduces, only the optimizer says that a window holds several iterations.
    const bool can_tell =
        has_reductions_ ||
        (std::ranges::count(pieces, true, &Piece::has_optimizer) > 1 &&
         std::ranges::all_of(pieces, [](const Piece& piece) { return !piece.signature.empty(); }));
    const std::size_t period = pieces.size() < 2 || !can_tell ? 0 : period_of(pieces);
    if (period == 0 || pieces.size() % period != 0 || pieces.size() == period) {
      found_.steps.push_back(window);
      found_.steps.back().updates = optimizer_in(window.start, window.end) != nullptr;
      return;
    }
    pieces = joined(std::move(pieces), period);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      TracedStep step = window;
      step.name += " part " + std::to_string(i + 1);
      step.start = pieces[i].begin;
      step.end = pieces[i].end;
      step.updates = pieces[i].has_optimizer;
      step.is_before_gap = window.is_before_gap && i + 1 == pieces.size();
      found_.steps.push_back(std::move(step));
    }
    if (has_cut_note_) return;
    has_cut_note_ = true;
    found_.notes.push_back(window.name + " holds " + std::to_string(pieces.size()) +
                           " backward passes that reduce the same: each counts as a step");
  }

  // --- without windows -----------------------------------------------------------------------------------------

  [[nodiscard]] Span whole_trace() const {
    Span whole;
    for (const RecordedEvent& now : trace_.events) {
      whole.end = std::max(whole.end, line_.instant(now.end_ns()));
    }
    return whole;
  }

  Iterations without_windows() {
    const Span whole = whole_trace();
    std::vector<Piece> pieces = pieces_of(whole.begin, whole.end);
    std::string by = optimizers_.empty() ? "their backward passes" : "the optimizer's steps";
    std::size_t period = pieces.size() < 2 ? 0 : period_of(pieces);
    // Where nothing repeats, the optimizer's steps alone part iterations.
    if (period == 0 && std::ranges::count(pieces, true, &Piece::has_optimizer) > 1) period = 1;
    if (found_.passes.empty()) {
      pieces = pieces_by_first_kernels(whole);
      by = "the kernels with which the trace begins";
      period = pieces.size() > 1 ? 1 : 0;
    }
    if (period == 0) return one_step(whole);
    pieces = joined(std::move(pieces), period);
    leave_out_ends(pieces);
    if (pieces.size() < 2) return one_step(whole);
    const bool accumulates = found_.accumulation.reducing > 1;
    const std::string what = accumulates ? "micro-step" : "iteration";
    found_.notes.push_back(no_annotation() + ": " + std::to_string(pieces.size()) + " " + what +
                           "s were found by " + (accumulates ? "their backward passes" : by) +
                           " (--step NAME takes annotations of that name)");
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      TracedStep step;
      step.number = static_cast<std::int64_t>(i) + 1;
      step.name = what + " " + std::to_string(step.number);
      step.updates = pieces[i].has_optimizer;
      step.start = pieces[i].begin;
      step.end = pieces[i].end;
      found_.steps.push_back(std::move(step));
    }
    return std::move(found_);
  }

  // From the first launch of GPU work to its last end, and calls that stand there to theirs. REQUIRES: calls by start.
  [[nodiscard]] Span worked_part_of(const Span& whole) const {
    if (line_.works.empty()) return whole;
    Span part{Instant::max(), {}};
    for (const GpuWork& work : line_.works) {
      const Instant launched = work.launch == kNone
                                   ? work.start
                                   : line_.calls[static_cast<std::size_t>(work.launch)].start;
      part.begin = std::min(part.begin, launched);
      part.end = std::max(part.end, work.end);
    }
    for (const HostCall& call : line_.calls) {
      if (call.start < part.end) part.end = std::max(part.end, call.end);
    }
    return part;
  }

  Iterations one_step(const Span& trace) {
    const Span whole = worked_part_of(trace);
    found_.notes.push_back(no_annotation() + ": the whole trace counts as one step");
    TracedStep step;
    step.name = "whole trace";
    step.start = whole.begin;
    step.end = whole.end;
    found_.steps = {std::move(step)};
    found_.is_whole_trace = true;
    return std::move(found_);
  }

  // An iteration whose begin or end is not in the trace reduces less, or misses its optimizer.
  void leave_out_ends(std::vector<Piece>& pieces) {
    std::size_t left_out = 0;
    if (pieces.size() > 2 && pieces[0].signature != pieces[1].signature) {
      pieces.erase(pieces.begin());
      ++left_out;
    }
    if (pieces.size() > 2) {
      const Piece& before = pieces[pieces.size() - 2];
      const bool accumulates = found_.accumulation.passes > 1;
      const bool lacks_optimizer =
          before.has_optimizer && !pieces.back().has_optimizer && !accumulates;
      if (lacks_optimizer || before.signature != pieces.back().signature) {
        pieces.pop_back();
        ++left_out;
      }
    }
    if (left_out == 0) return;
    found_.notes.push_back("left out: " + std::to_string(left_out) +
                           (left_out == 1 ? " iteration" : " iterations") +
                           " at the ends of the trace, which are not whole");
  }

  // Without operators: an iteration begins where the kernels follow each other as at the trace's begin.
  [[nodiscard]] std::vector<Piece> pieces_by_first_kernels(const Span& whole) const {
    constexpr std::size_t kSameKernels = 4;
    std::vector<std::int32_t> launches;  // calls of kernels, by time
    for (std::size_t c = 0; c < line_.calls.size(); ++c) {
      if (line_.calls[c].first_work != kNone) launches.push_back(static_cast<std::int32_t>(c));
    }
    const auto name_at = [&](std::size_t i) {
      const HostCall& call = line_.calls[static_cast<std::size_t>(launches[i])];
      return event(line_.works[static_cast<std::size_t>(call.first_work)].event).name;
    };
    std::vector<Piece> pieces;
    Instant from = whole.begin;
    for (std::size_t i = 1; i + kSameKernels <= launches.size(); ++i) {
      bool alike = true;
      for (std::size_t k = 0; k < kSameKernels && alike; ++k) alike = name_at(i + k) == name_at(k);
      if (!alike) continue;
      const Instant at = line_.calls[static_cast<std::size_t>(launches[i])].start;
      Signature signature = signature_of(from, at);
      if (signature.empty()) continue;
      pieces.push_back({from, at, std::move(signature), false});
      from = at;
    }
    pieces.push_back({from, whole.end, signature_of(from, whole.end), false});
    if (pieces.back().signature.empty()) pieces.pop_back();
    for (std::size_t i = 1; i + 1 < pieces.size(); ++i) {
      if (pieces[i].signature != pieces[0].signature) return {};
    }
    if (pieces.size() == 2 && pieces[0].signature != pieces[1].signature) return {};
    return pieces;
  }

  const Recording& trace_;
  const RankTimeline& line_;
  Iterations found_;
  std::vector<char> is_of_gradients_;  // by name: hooks behind it reduce them
  std::vector<Role> roles_;            // by name
  std::vector<std::int32_t> forward_;  // events of its launches, by time
  std::vector<Span> optimizers_;       // by time
  std::vector<Signature> signatures_;  // by pass
  std::vector<std::pair<Instant, const TracedCollective*>> by_launch_;
  std::vector<TracedStep> windows_;
  std::map<std::int32_t, std::vector<std::int32_t>> functions_;  // autograd's, by thread and time
  bool has_reductions_ = false;  // of gradients, as far as can be told
  bool has_cut_note_ = false;
};

}  // namespace

Iterations find_iterations(const Recording& trace, const RankTimeline& line,
                           const std::string& asked) {
  return IterationFinder(trace, line).find(asked);
}

}  // namespace dovetail::imports
