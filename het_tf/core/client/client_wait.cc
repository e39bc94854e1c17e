// Waiting for partitions, and telling people what for: which partition, where it is, why, and for how long.
#include <algorithm>
#include <cmath>

#include "het_tf/core/client/client.h"

namespace het {

std::string Seconds(double seconds) {
  const auto tenths = static_cast<int64_t>(std::llround(seconds * 10));
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) + " s";
}

std::string PartitionNames(const std::vector<uint32_t>& partitions) {
  constexpr size_t kNamed = 8;
  std::string names = partitions.size() == 1 ? "partition " : "partitions ";
  for (size_t i = 0; i < partitions.size() && i < kNamed; ++i) {
    names += (i == 0 ? "" : ", ") + std::to_string(partitions[i]);
  }
  if (partitions.size() > kNamed) names += " and " + std::to_string(partitions.size() - kNamed) + " more";
  return names;
}

std::string Client::WhatIsMissing(bool* out_of_memory) {
  struct Missing {
    std::vector<uint32_t> partitions;
    double since;
  };
  // Many partitions of one server mostly wait for the same thing.
  std::map<std::pair<std::string, std::string>, Missing> all;
  const double now = transport_->Now();
  for (const Link& link : links_) {
    std::string why = link.last_failure;
    double since = link.failing_since;
    if (why.empty()) {
      why = "no answer";
      since = link.outstanding.empty() ? now : link.outstanding.front().sent_at;
    }
    if (link.outstanding.empty() && link.waiting.empty() && !link.log.unapplied()) {
      if (config_.durability != Durability::kReplicated || !link.log.keeps()) continue;
      why = "pushes are with " + std::to_string(link.replicas) + " of " +
            std::to_string(config_.min_replicas) + " replicas";
      since = link.few_since > 0 ? link.few_since : now;
    }
    *out_of_memory = *out_of_memory || why == kStoreOutOfMemory;
    Missing& missing =
        all.try_emplace({why, transport_->Where(link.partition)}, Missing{{}, now}).first->second;
    missing.partitions.push_back(link.partition);
    missing.since = std::min(missing.since, since);
  }
  std::string text;
  for (const auto& [what, missing] : all) {
    const auto& [why, where] = what;
    text += " " + PartitionNames(missing.partitions);
    if (!where.empty() && why.find(where) == std::string::npos) text += " at " + where;
    text += ": " + why + ", since " + Seconds(now - missing.since) + ";";
    if (text.size() > 600) break;
  }
  return text;
}

Status Client::Wait(const std::function<bool()>& done, const char* what, const char* remedy) {
  const double start = transport_->Now();
  const uint64_t out_of_memory = out_of_memory_;
  double notice = kNoticeSeconds;
  rejected_ = Status();
  waiting_since_ = start;
  progress_at_ = start;
  while (!done()) {
    Progress(0.05);
    for (const Link& link : links_) HET_RETURN_IF_ERROR(link.fatal);
    HET_RETURN_IF_ERROR(rejected_);
    if (done()) break;
    const double now = transport_->Now();
    const bool hopeless = config_.fail_out_of_memory && out_of_memory_ != out_of_memory;
    const bool fails = now - progress_at_ >= config_.deadline || hopeless;
    const bool tells = now - start >= notice && config_.notice;
    if (!fails && !tells) continue;
    bool exhausted = false;
    const std::string so_far = std::string(what) + " waited for " + Seconds(std::floor(now - start)) + ";" +
                               WhatIsMissing(&exhausted);
    if (!fails) {
      notice *= 2;
      config_.notice(so_far + " it is tried again until nothing has moved on for " +
                     Seconds(config_.deadline));
      continue;
    }
    if (exhausted) remedy = "Give the store more memory, or use fewer rows";
    return Status(exhausted ? Code::kResourceExhausted : Code::kDeadlineExceeded,
                  so_far + " updates that were made are kept and will be sent. " + remedy);
  }
  return Status();
}

}  // namespace het
