// Reads measured profiles and makes a Program and Costs of them: forward, one backward op before
// each gradient's ready time, the optimizer, and the collective times where the profile has them.
// Times are scaled to the step that was measured without communication.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/workloads/profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/statistics.h"
#include "models/clusters/cluster.h"

namespace dovetail::models {
namespace {

constexpr double kLongestUs = kLongestTime.count() / 1e3;
// How many steps' time p10 and p90 lie apart at most: of 2^20 ranks each step would wait 96 for the slowest.
constexpr int kWidest = 50;
constexpr std::int64_t kLargestNumel = std::int64_t{1} << 40;

Duration time_at(JsonObject& object, std::string_view key) {
  return from_us(object.number(key, 0, kLongestUs));
}

schedule::DType read_dtype(const JsonValue& value) {
  constexpr std::array<std::string_view, 4> kWords = {"float32", "float16", "bfloat16", "float64"};
  return kAllOf<schedule::DType>.at(value.word(kWords));
}

ProfiledStep read_step(JsonObject& object) {
  return {time_at(object, "forward_us"), time_at(object, "backward_us"),
          time_at(object, "optimizer_us")};
}

ProfiledWork read_host_work(JsonObject& object) {
  return {.compute = time_at(object, "compute_us"), .issue = time_at(object, "issue_us")};
}

ProfiledHost read_host(JsonObject object) {
  const auto part = [&](std::string_view key) {
    JsonObject of = object.object(key);
    const ProfiledWork work = read_host_work(of);
    of.done();
    return work;
  };
  const ProfiledHost host{part("forward"), part("rest"), part("optimizer")};
  object.done();
  return host;
}

void read_gradients(const JsonArray& array, Profile& profile) {
  if (array.size() == 0) array.value().fail("expected at least one gradient");
  std::set<std::string> names;
  for (const JsonValue value : array) {
    JsonObject object = value.object();
    ProfiledGradient gradient;
    gradient.name = object.string("name");
    if (gradient.name.empty() || !names.insert(gradient.name).second) {
      object.at("name").fail("expected a name of its own, found \"" + gradient.name + "\"");
    }
    gradient.numel = object.integer("numel", 1, kLargestNumel);
    gradient.dtype = read_dtype(object.at("dtype"));
    gradient.ready.push_back(time_at(object, "ready_us"));
    if (profile.by_rank.size() == 2) {
      gradient.ready.push_back(time_at(object, "ready_us_rank1"));
    }
    for (std::size_t rank = 0; rank < gradient.ready.size(); ++rank) {
      const bool early =
          !profile.gradients.empty() && gradient.ready[rank] < profile.gradients.back().ready[rank];
      const bool late = gradient.ready[rank] > profile.by_rank[rank].backward;
      const std::string key = rank == 0 ? "ready_us" : "ready_us_rank1";
      if (early) object.at(key).fail("expected gradients in gradient-ready order");
      if (late) object.at(key).fail("expected a time within backward");
    }
    object.ignore("definition");  // known even when absent
    if (object.has("definition")) gradient.definition = object.integer("definition", 0, 1 << 24);
    if (profile.host) gradient.work = read_host_work(object);
    object.done();
    profile.gradients.push_back(std::move(gradient));
  }
}

// What a capture says of itself; its figures are for people.
std::vector<std::string> read_conditions(JsonObject object) {
  std::vector<std::string> reasons;
  for (const JsonValue value : object.array("why_not_valid")) reasons.push_back(value.string());
  const bool valid = object.at("valid").boolean();
  if (valid != reasons.empty()) {
    object.at("valid").fail("expected true exactly where why_not_valid is empty");
  }
  return reasons;
}

std::vector<std::vector<std::size_t>> read_buckets(const JsonArray& array, const Profile& profile) {
  std::map<std::string, std::size_t> places;
  for (const ProfiledGradient& gradient : profile.gradients) {
    places.emplace(gradient.name, places.size());
  }
  std::vector<std::vector<std::size_t>> buckets;
  std::set<std::size_t> seen;
  for (const JsonValue value : array) {
    std::vector<std::size_t>& bucket = buckets.emplace_back();
    for (const JsonValue name : value.array()) {
      const auto found = places.find(name.string());
      if (found == places.end() || !seen.insert(found->second).second) {
        name.fail("expected a gradient of the profile, once, found \"" + name.string() + "\"");
      }
      bucket.push_back(found->second);
    }
    if (bucket.empty()) value.fail("expected at least one gradient");
  }
  if (seen.size() != places.size()) {
    array.value().fail("expected each of the " + std::to_string(places.size()) +
                       " gradients in a bucket, found " + std::to_string(seen.size()));
  }
  return buckets;
}

RecordedStep read_recorded(JsonObject object, const Profile& profile) {
  constexpr std::array<std::string_view, 2> kModes = {"copy", "view"};
  for (const std::string_view key : {"replayed_us", "bucket_call_low_us", "bucket_call_high_us"}) {
    object.ignore(key);  // known even when absent
  }
  RecordedStep recorded;
  recorded.step = from_us(object.number("step_us", 0.001, kLongestUs));
  if (object.has("replayed_us")) recorded.replayed = time_at(object, "replayed_us");
  recorded.framework = object.string_or("framework", "");
  recorded.is_copied = object.at("mode").word(kModes) == 0;
  recorded.micro_steps = object.integer_or("micro_steps", 1, 1, 1 << 16);
  recorded.call_low = recorded.call_high = profile.bucket_call;
  const double call = to_us(profile.bucket_call);
  if (object.has("bucket_call_low_us")) {
    recorded.call_low = from_us(object.number("bucket_call_low_us", 0, call));
  }
  if (object.has("bucket_call_high_us")) {
    recorded.call_high = from_us(object.number("bucket_call_high_us", call, kLongestUs));
  }
  recorded.buckets = read_buckets(object.array("buckets"), profile);
  object.done();
  return recorded;
}

void read_profile_section(JsonObject object, Profile& profile) {
  profile.by_rank.push_back(read_step(object));
  if (object.has("rank1")) {
    JsonObject rank1 = object.object("rank1");
    profile.by_rank.push_back(read_step(rank1));
    rank1.done();
    if (profile.host) object.at("rank1").fail("expected no rank1 beside a host");
    if (profile.world_size != 2) {
      object.value().fail("expected world_size 2 where rank1 is given, found " +
                          std::to_string(profile.world_size));
    }
  }
  read_gradients(object.array("gradients"), profile);
  object.done();
}

double ratio(Duration measured, Duration profiled) {
  if (profiled <= Duration{}) return 1;
  return static_cast<double>(measured.count()) / static_cast<double>(profiled.count());
}

// What a profiled time is in the step without communication must be a time as well.
void check_scale(JsonObject& object, std::string_view key, Duration measured,
                 const std::vector<ProfiledStep>& by_rank, Duration ProfiledStep::*part) {
  const double scale = ratio(measured, by_rank.front().*part);
  for (const ProfiledStep& step : by_rank) {
    if (to_us(step.*part) * scale <= kLongestUs) continue;
    object.at(key).fail("expected at most 1e12 us on every rank, found " + std::to_string(scale) +
                        " times what the profile has");
  }
}

Profile::Baseline read_baseline(JsonObject object, const std::vector<ProfiledStep>& by_rank) {
  Profile::Baseline baseline;
  baseline.step = time_at(object, "step_us");
  baseline.forward = time_at(object, "forward_us");
  baseline.backward = time_at(object, "backward_us");
  baseline.optimizer = time_at(object, "optimizer_us");
  baseline.p10 = time_at(object, "p10_us");
  baseline.p90 = time_at(object, "p90_us");
  if (baseline.p90 < baseline.p10) object.at("p90_us").fail("expected a time >= p10_us");
  if (baseline.step > Duration{} && (baseline.p90 - baseline.p10) / kWidest > baseline.step) {
    object.at("p90_us").fail("expected p10_us and p90_us within 50 times step_us of each other");
  }
  check_scale(object, "forward_us", baseline.forward, by_rank, &ProfiledStep::forward);
  check_scale(object, "backward_us", baseline.backward, by_rank, &ProfiledStep::backward);
  check_scale(object, "optimizer_us", baseline.optimizer, by_rank, &ProfiledStep::optimizer);
  object.done();
  return baseline;
}

// Points of one table: rising sizes, positive times. Of what the file says a share is one collective's, a
// nanosecond at least.
std::vector<std::pair<Bytes, Duration>> read_points(const JsonArray& array, std::string_view bytes,
                                                    std::string_view time, double share) {
  std::vector<std::pair<Bytes, Duration>> points;
  for (const JsonValue value : array) {
    JsonObject object = value.object();
    const Bytes size(object.integer(bytes, 1, std::int64_t{1} << 50));
    const Duration us = from_us(object.number(time, 0.001 / share, kLongestUs) * share);
    if (!points.empty() && size <= points.back().first) {
      object.at(bytes).fail("expected sizes that rise");
    }
    object.done();
    points.emplace_back(size, us);
  }
  return points;
}

std::vector<EstimatedTime> read_estimated(const JsonArray& array) {
  std::vector<EstimatedTime> estimates;
  for (const JsonValue value : array) {
    JsonObject object = value.object();
    const Bytes size(object.integer("bytes", 1, std::int64_t{1} << 50));
    if (!estimates.empty() && size <= estimates.back().bytes) {
      object.at("bytes").fail("expected sizes that rise");
    }
    const double us = object.number("us", 0.001, kLongestUs);
    estimates.push_back({.bytes = size,
                         .low = from_us(object.number("low_us", 0.001, us)),
                         .time = from_us(us),
                         .high = from_us(object.number("high_us", us, kLongestUs))});
    object.done();
  }
  return estimates;
}

Duration interpolate(const std::vector<std::pair<Bytes, Duration>>& points, Bytes at) {
  const auto upper = std::ranges::lower_bound(points, at, {}, &std::pair<Bytes, Duration>::first);
  if (upper == points.begin()) return points.front().second;
  if (upper == points.end()) return points.back().second;
  const auto lower = upper - 1;
  const double share = static_cast<double>((at - lower->first).count()) /
                       static_cast<double>((upper->first - lower->first).count());
  return lower->second + stretched(upper->second - lower->second, share);
}

// Joins the two tables on the sizes of both. Beyond its own points the queue's curve runs parallel
// to the other one, but does not fall where that one does.
ProfiledCollectives join(const std::vector<std::pair<Bytes, Duration>>& alone,
                         const std::vector<std::pair<Bytes, Duration>>& queue) {
  std::set<Bytes> sizes;
  for (const auto& [size, time] : alone) sizes.insert(size);
  for (const auto& [size, time] : queue) {
    if (size >= alone.front().first && size <= alone.back().first) sizes.insert(size);
  }
  ProfiledCollectives result;
  for (const Bytes size : sizes) {
    CollectivePoint point;
    point.bytes = size;
    point.isolated = interpolate(alone, size);
    if (!queue.empty()) {
      const Bytes nearest = std::clamp(size, queue.front().first, queue.back().first);
      const Duration beyond =
          size > queue.back().first ? point.isolated - interpolate(alone, nearest) : Duration{};
      point.back_to_back = interpolate(queue, nearest) + std::max(Duration{}, beyond);
    }
    result.points.push_back(point);
  }
  return result;
}

ProfiledCollectives read_collectives(JsonObject& root) {
  const auto alone = read_points(root.array("all_reduce_alone"), "bytes", "us", 1);
  std::vector<EstimatedTime> estimated;
  if (root.has("all_reduce_estimated")) {
    estimated = read_estimated(root.array("all_reduce_estimated"));
  }
  if (alone.empty() || alone.size() + estimated.size() < 2) {
    root.at("all_reduce_alone").fail("expected at least two points");
  }
  std::vector<std::pair<Bytes, Duration>> queue;
  if (root.has("all_reduce_queue_of_8")) {
    queue = read_points(root.array("all_reduce_queue_of_8"), "bytes_each", "us_for_8", 0.125);
    if (queue.size() < 2) {
      root.at("all_reduce_queue_of_8").fail("expected at least two points");
    }
  }
  ProfiledCollectives result = join(alone, queue);
  for (const EstimatedTime& estimate : estimated) {
    if (std::ranges::find(result.points, estimate.bytes, &CollectivePoint::bytes) ==
        result.points.end()) {
      continue;
    }
    root.at("all_reduce_estimated").fail("expected sizes that were not measured, alone or queued");
  }
  result.estimated = std::move(estimated);
  return result;
}

// Builds the Program of a profile. The baseline is of rank 0; the other rank keeps its ratio to it.
class ProfileProgram {
 public:
  explicit ProfileProgram(const Profile& profile) : profile_(profile) {
    if (!profile.baseline) return;
    const Profile::Baseline& measured = *profile.baseline;
    const ProfiledStep& base = profile.by_rank.front();
    scale_ = {ratio(measured.forward, base.forward), ratio(measured.backward, base.backward),
              ratio(measured.optimizer, base.optimizer)};
    between_ = std::max(Duration{},
                        measured.step - measured.forward - measured.backward - measured.optimizer);
  }

  schedule::Program build() {
    program_.name = profile_.name;
    program_.world_size = profile_.world_size;
    if (profile_.host || profile_.bucket_call > Duration{}) {
      program_.bucket_call = profile_.bucket_call;
    }
    program_.groups.push_back({GroupId{0}, "dp", {}});
    for (std::int32_t rank = 0; rank < profile_.world_size; ++rank) {
      program_.groups[0].ranks.push_back(Rank{rank});
    }
    add_parameters();
    add_forward();
    add_backward();
    add_optimizer();
    return std::move(program_);
  }

 private:
  struct Scale {
    double forward = 1, backward = 1, optimizer = 1;
  };

  TensorId add_tensor(std::string name, schedule::TensorKind kind, schedule::DType dtype,
                      std::vector<std::int64_t> shape) {
    const TensorId id{static_cast<std::int32_t>(program_.tensors.size())};
    program_.tensors.push_back({id, std::move(name), kind, dtype, std::move(shape)});
    return id;
  }

  void add_op(std::string name, schedule::Phase phase, std::vector<Duration> by_rank,
              std::vector<TensorId> reads, std::vector<TensorId> writes) {
    const OpId id{static_cast<std::int32_t>(program_.ops.size())};
    program_.ops.push_back({id, std::move(name), phase, schedule::DType::F32,
                            schedule::TimedWork{std::move(by_rank)}, std::move(reads),
                            std::move(writes)});
  }

  // Parameters in the order of their definition, where that is known; else with their gradients.
  void add_parameters() {
    parameters_.resize(profile_.gradients.size());
    std::map<std::int64_t, std::size_t> order;
    for (std::size_t i = 0; i < profile_.gradients.size(); ++i) {
      const ProfiledGradient& gradient = profile_.gradients[i];
      if (!gradient.definition || !order.emplace(*gradient.definition, i).second) return;
    }
    for (const auto& [place, index] : order) {
      const ProfiledGradient& gradient = profile_.gradients[index];
      parameters_[index] = add_tensor(gradient.name, schedule::TensorKind::Parameter,
                                      gradient.dtype, {gradient.numel});
    }
    has_parameters_ = true;
  }

  void add_forward() {
    loss_ = add_tensor("loss", schedule::TensorKind::Activation, schedule::DType::F32, {});
    if (between_ > Duration{}) {
      add_op("between-steps", schedule::Phase::Forward, {between_}, {}, {});
    }
    std::vector<Duration> forward;
    for (const ProfiledStep& step : profile_.by_rank) {
      forward.push_back(stretched(step.forward, scale_.forward));
    }
    if (profile_.host) forward = {profile_.host->forward.compute};
    add_op("forward", schedule::Phase::Forward, std::move(forward), {}, {loss_});
    if (profile_.host) program_.ops.back().issue = profile_.host->forward.issue;
  }

  // One op per gradient, which ends when the gradient is ready, and one for what follows the last.
  void add_backward() {
    const std::size_t ranks = profile_.by_rank.size();
    std::vector<Duration> done(ranks);
    for (std::size_t i = 0; i < profile_.gradients.size(); ++i) {
      const ProfiledGradient& gradient = profile_.gradients[i];
      if (!has_parameters_) {
        parameters_[i] = add_tensor(gradient.name, schedule::TensorKind::Parameter, gradient.dtype,
                                    {gradient.numel});
      }
      gradients_.push_back(add_tensor(gradient.name + ".grad", schedule::TensorKind::Gradient,
                                      gradient.dtype, {gradient.numel}));
      std::vector<Duration> work;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Duration ready = stretched(gradient.ready[rank], scale_.backward);
        work.push_back(ready - done[rank]);
        done[rank] = ready;
      }
      if (gradient.work) work = {gradient.work->compute};
      add_op(gradient.name + ".backward", schedule::Phase::Backward, std::move(work), {loss_},
             {gradients_.back()});
      if (gradient.work) program_.ops.back().issue = gradient.work->issue;
      program_.reductions.push_back({gradients_.back(), GroupId{0}, schedule::ReduceOp::Average});
    }
    std::vector<Duration> rest;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Duration end = stretched(profile_.by_rank[rank].backward, scale_.backward);
      rest.push_back(std::max(Duration{}, end - done[rank]));
    }
    if (profile_.host) rest = {profile_.host->rest.compute};
    add_op("backward.rest", schedule::Phase::Backward, std::move(rest), {loss_}, {});
    if (profile_.host) program_.ops.back().issue = profile_.host->rest.issue;
  }

  // The optimizer's time, shared out by bytes. The host issues all updates with an op that takes no time, so that it does
  // so too where a schedule shares the updates out.
  void add_optimizer() {
    if (profile_.host) {
      add_op("optimizer.begin", schedule::Phase::Optimizer, {Duration{}}, {loss_}, {});
      program_.ops.back().issue = profile_.host->optimizer.issue;
    }
    Bytes total;
    for (const TensorId id : gradients_) total += program_.tensor(id).bytes();
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const double share = static_cast<double>(program_.tensor(gradients_[i]).bytes().count()) /
                           static_cast<double>(total.count());
      std::vector<Duration> work;
      for (const ProfiledStep& step : profile_.by_rank) {
        work.push_back(stretched(step.optimizer, scale_.optimizer * share));
      }
      if (profile_.host) work = {stretched(profile_.host->optimizer.compute, share)};
      add_op(profile_.gradients[i].name + ".update", schedule::Phase::Optimizer, std::move(work),
             {gradients_[i], parameters_[i]}, {parameters_[i]});
      if (profile_.host) program_.ops.back().issue = Duration{};
      program_.ops.back().effect = schedule::Update{.elementwise = true, .rescale = Rational(1)};
    }
  }

  const Profile& profile_;
  schedule::Program program_;
  Scale scale_;
  Duration between_{};  // zeroing gradients, Python between the parts of a step
  TensorId loss_;
  std::vector<TensorId> parameters_, gradients_;  // parallel to profile_.gradients
  bool has_parameters_ = false;                   // all of them, before the gradients
};

}  // namespace

std::vector<CollectivePoint> ProfiledCollectives::table() const {
  std::vector<CollectivePoint> all = points;
  for (const EstimatedTime& estimate : estimated) {
    all.push_back({.bytes = estimate.bytes, .isolated = estimate.time});
  }
  std::ranges::sort(all, {}, &CollectivePoint::bytes);
  return all;
}

Profile read_profile(const JsonFile& file) {
  JsonObject root = file.root();
  if (root.has("schema")) root.schema("dovetail.profile/1");
  root.ignore("kind");
  root.ignore("what");
  root.ignore("settings");
  root.ignore("link_mbit_per_s");
  Profile profile;
  profile.name = root.string("name");
  profile.world_size = root.integer("world_size", 1, 1 << 20);
  if (root.has("host")) {
    if (root.has("no_communication_step")) {
      root.at("host").fail("expected no no_communication_step beside it");
    }
    profile.host = read_host(root.object("host"));
  }
  if (root.has("bucket_call_us")) profile.bucket_call = time_at(root, "bucket_call_us");
  read_profile_section(root.object("profile"), profile);
  if (root.has("recorded")) profile.recorded = read_recorded(root.object("recorded"), profile);
  if (root.has("no_communication_step")) {
    profile.baseline = read_baseline(root.object("no_communication_step"), profile.by_rank);
  }
  if (root.has("all_reduce_alone")) profile.collectives = read_collectives(root);
  if (root.has("compute_slowdown_while_communicating")) {
    JsonObject slow = root.object("compute_slowdown_while_communicating");
    slow.ignore("forward");
    profile.compute_slowdown.push_back(slow.number("backward", 1, 1000));
    if (slow.has("backward_rank1")) {
      profile.compute_slowdown.push_back(slow.number("backward_rank1", 1, 1000));
    }
    slow.done();
  }
  if (root.has("conditions")) profile.why_not_valid = read_conditions(root.object("conditions"));
  if (root.has("notes")) {
    for (const JsonValue note : root.array("notes")) profile.notes.push_back(note.string());
  }
  root.ignore("cpu_share_of_communication");
  profile.copy_ns_per_byte = root.number_or("bucket_copy_ns_per_byte", 0, 0, 1e6);
  root.done();
  return profile;
}

schedule::Program profile_program(const Profile& profile) {
  return ProfileProgram(profile).build();
}

double skew_share(const Profile& profile) {
  if (!profile.baseline || profile.baseline->step <= Duration{}) return 0;
  // p90 - p10 of a normal distribution is 2.563 sigma.
  const double sigma =
      static_cast<double>((profile.baseline->p90 - profile.baseline->p10).count()) / 2.563;
  return expected_maximum(profile.world_size) * sigma /
         static_cast<double>(profile.baseline->step.count());
}

namespace {

// The machine of the profile as far as its collectives go: an all-reduce over all ranks.
Cluster machine_of(const Profile& profile) {
  Cluster cluster;
  cluster.name = profile.name;
  cluster.ranks = profile.world_size;
  if (!profile.collectives) return cluster;
  cluster.collectives = {
      {schedule::Collective::AllReduce, profile.world_size, 1, profile.collectives->table()}};
  return cluster;
}

// How much of the smallest all-reduce's time is processor time of the host, where collectives slow compute down by this
// factor: all on a loopback or a shaped link, where the host moves the bytes (factors of 1.1 and more); nothing where the
// network does, and the factor is 1 but for 1 % of noise. In proportion between the two, so that noise flips nothing.
double processor_share(double slowdown) {
  constexpr double kNoise = 1.01;
  constexpr double kHostMovesBytes = 1.1;
  return std::clamp((slowdown - kNoise) / (kHostMovesBytes - kNoise), 0.0, 1.0);
}

}  // namespace

bool has_own_costs(const Profile& profile) {
  return profile.collectives.has_value() || profile.world_size == 1;
}

Costs profile_costs(const Profile& profile, const schedule::Program& program) {
  DOVETAIL_CHECK(has_own_costs(profile)) << profile.name;
  const double stretch = 1 + skew_share(profile);
  Costs costs;
  costs.machine = profile.name;
  // Passes over the Program move half as many bytes per byte as a copy, which reads and writes each.
  costs.ops = OpCosts({.machine = profile.name,
                       .copy = CopyModel{{}, profile.copy_ns_per_byte * stretch},
                       .timed_stretch = stretch},
                      program);
  costs.collectives = collective_costs(machine_of(profile), program).costs;
  costs.copies = CopyModel{{}, profile.copy_ns_per_byte};
  costs.host = recorded_host(program).value_or(HostModel{.kind = HostModel::Kind::Inline});
  const Duration least =
      profile.collectives ? profile.collectives->points.front().isolated : Duration{};
  for (const double slowdown : profile.compute_slowdown) {
    costs.contention_by_class.push_back(
        {.compute_slowdown = slowdown,
         .collective_slowdown = 1,
         .collective_cpu = stretched(least, processor_share(slowdown))});
  }
  costs.distinct_ranks = static_cast<std::int64_t>(profile.by_rank.size());
  return costs;
}

Duration RecordedStep::off() const {
  constexpr std::int64_t kLeast = 200;
  return std::max(step / kLeast, std::chrono::abs(replayed.value_or(step) - step));
}

CostBounds profile_bounds(const Profile& profile, const schedule::Program& program) {
  DOVETAIL_CHECK(profile.recorded.has_value()) << profile.name;
  const auto with = [&](Duration call, Duration EstimatedTime::*bound) {
    Profile changed = profile;
    if (changed.collectives) {
      for (EstimatedTime& estimate : changed.collectives->estimated) {
        estimate.time = estimate.*bound;
      }
    }
    Costs costs = profile_costs(changed, program);
    costs.host.collective = call;
    return costs;
  };
  return {.cheap = with(profile.recorded->call_low, &EstimatedTime::low),
          .dear = with(profile.recorded->call_high, &EstimatedTime::high)};
}

}  // namespace dovetail::models
