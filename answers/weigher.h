// From a Question to its Outcome: load, decide, lower, play, bound, hold; what leaves as a plan is verified. What was loaded and
// simulated is kept.
//
//   Weigher weigher(data_dir);
//   Outcome found = weigher.weigh({.job = "llama3_8b:dp_shard=8,gbs=64", .cluster = "h100x8"});
//   weigher.at_site(question, [&](Site& site) { MadePlan made = site.plan(question); });
//
// Several threads may ask at once; those that ask of one subject on one machine wait for each other.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "answers/outcome.h"
#include "schedule/plan_json.h"
#include "schedule/resident.h"

namespace dovetail::answers {

// A gradient that is reduced, as one who makes buckets must know it.
struct GradientFacts {
  std::string name;
  Bytes bytes{};
  std::int64_t elements = 0;
  Duration ready{};      // from the start of the step, where nothing but compute runs
  std::size_t kind = 0;  // gradients of one kind can share a bucket
};

// A plan, proved legal, with what its prediction was made of.
struct MadePlan {
  schedule::Plan plan;  // with the step that is predicted, and its bound
  search::Planned planned;
  std::optional<search::Bound> bound =
      std::nullopt;  // absent: none holds for schedules of this kind
};

// A workload or a job on a machine, with what was found of it. Not for several threads at once.
class Site {
 public:
  // Reads both. Throws InputError. REQUIRES: question.require_subject() does not throw.
  Site(const Question& question, const std::string& data_dir);

  // REQUIRES, here and below: the question is of this subject on this machine. Throws InputError.
  Outcome weigh(const Question& question);
  MadePlan plan(const Question& question);
  std::vector<GradientFacts> gradients();
  // What an outcome rests on, one line each.
  std::vector<std::string> notes(const Outcome& outcome);
  // A text that `make` made for this key, now or before. The last 20,000 or fewer are kept.
  std::string remembered(std::string key, const std::function<std::string()>& make);
  // The job as typed, on the ranks that the what-ifs ask for; nothing: a workload.
  [[nodiscard]] const std::optional<jobs::Job>& job() const { return job_; }
  // What everything is predicted on.
  const predict::Inputs& inputs();
  search::Planner& planner();

 private:
  void make_planner();
  void forget();
  [[nodiscard]] schedule::Policy policy_for(const Question& question) const;
  search::Start start_of(const Question& question);
  search::Start own_buckets(const Question& question, const schedule::Policy& policy);
  const schedule::Schedule& frame_of(const schedule::Policy& policy);
  const schedule::OwedByName& travelling_with(const schedule::Policy& policy);
  Outcome weigh_job(predict::Play how) const;
  Told told_to(const frameworks::Framework& target, search::Candidate& candidate);
  [[nodiscard]] std::optional<search::Bound> bound_of(const search::Candidate& candidate);
  [[nodiscard]] schedule::Room memory_of(const schedule::Schedule& schedule) const;

  predict::InputOptions options_;
  std::optional<jobs::Job> job_;            // in place of a workload,
  std::optional<models::Cluster> cluster_;  // on this
  std::optional<predict::Inputs> inputs_;   // with the planner, to which its program has gone
  std::optional<search::Planner> planner_;  // made when schedules are asked about
  std::optional<schedule::OwedByName> owed_;
  std::optional<schedule::ResidentTensors> resident_;  // of the planner's program
  frameworks::Gradients gradients_;                    // what words depend on
  std::vector<predict::HostPhase> host_bound_;
  const predict::PublicError* error_ = nullptr;  // of steps of this subject here; null: unknown
  std::optional<Duration> now_;                  // of a recorded step (Outcome::now)
  std::map<std::string, schedule::Schedule> frames_;  // Schedules of policies without their buckets
  std::map<std::string, schedule::OwedByName>
      travelling_;  // what travels with policies that shard or have stages
  std::unordered_map<std::string, std::string> remembered_;
};

// All that a site is made of, in one text: questions about one site have the same.
std::string site_key(const Question& question);

class Weigher {
 public:
  static constexpr std::size_t kKept = 16;  // sites
  // Finds shipped workloads and clusters in this folder.
  explicit Weigher(std::string data_dir) : data_dir_(std::move(data_dir)) {}

  // All throw InputError for a question that cannot be answered; after any other exception what was kept of the site is dropped.
  Outcome weigh(const Question& question);
  // Whatever is asked of the site that the question is about.
  void at_site(const Question& question, const std::function<void(Site&)>& ask);

 private:
  struct Kept {
    std::mutex mutex;
    std::optional<Site> site;
  };
  std::shared_ptr<Kept> kept_for(const Question& question);

  std::string data_dir_;
  std::mutex mutex_;                                               // of kept_
  std::list<std::pair<std::string, std::shared_ptr<Kept>>> kept_;  // that was asked last first
};

}  // namespace dovetail::answers
