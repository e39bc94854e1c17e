#include "het_tf/core/client/waiter.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "het_tf/core/base/interrupt.h"
#include "het_tf/core/client/messages.h"

namespace het {

std::string Waiter::WhatIsMissing(bool* out_of_memory) const {
  struct Missing {
    std::vector<uint32_t> partitions;
    double since;
  };
  // Many partitions of one server mostly wait for the same thing.
  std::map<std::pair<std::string, std::string>, Missing> all;
  const double now = transport_->Now();
  for (const Session& session : exchange_->sessions()) {
    std::string why = session.backoff().reason();
    double since = session.backoff().since();
    if (why.empty()) {
      why = "no answer";
      since = session.outstanding().empty() ? now : session.outstanding().front().sent_at;
    }
    if (!session.busy() && !durability_->WaitsForReplicas(session, &why, &since)) continue;
    *out_of_memory = *out_of_memory || why == kStoreOutOfMemory;
    Missing& missing =
        all.try_emplace({why, transport_->Where(session.partition())}, Missing{{}, now}).first->second;
    missing.partitions.push_back(session.partition());
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

Status Waiter::Until(const std::function<bool()>& done, const char* what, const char* remedy) {
  // Answers to a call that memory has ended say nothing about this one.
  if (config_->fail_out_of_memory && !done()) progress_(0);
  exchange_->BeginCall();
  const Exchange::Call& call = exchange_->call();
  const double start = call.began;
  const uint64_t out_of_memory = call.out_of_memory;
  double notice = kNoticeSeconds;
  while (!done()) {
    progress_(0.05);
    HET_RETURN_IF_ERROR(exchange_->fatal());
    HET_RETURN_IF_ERROR(call.rejected);
    if (done()) break;
    const double now = transport_->Now();
    const bool hopeless = config_->fail_out_of_memory && call.out_of_memory != out_of_memory;
    const bool fails = now - call.moved_at >= config_->deadline || hopeless;
    const bool tells = now - start >= notice && config_->notice;
    const bool interrupted = Interrupts::Due(call.moved_at > start ? call.moved_at : 0);
    if (!fails && !tells && !interrupted) continue;
    bool exhausted = false;
    const std::string so_far = std::string(what) + " waited for " + Seconds(std::floor(now - start)) + ";" +
                               WhatIsMissing(&exhausted);
    if (interrupted) {
      return Status(Code::kCancelled,
                    so_far + " it was interrupted; updates that were made are kept and will be sent");
    }
    if (!fails) {
      notice *= 2;
      config_->notice(so_far + " it is tried again until nothing has moved on for " +
                      Seconds(config_->deadline));
      continue;
    }
    if (exhausted) remedy = "Give the store more memory, or use fewer rows";
    return Status(exhausted ? Code::kResourceExhausted : Code::kDeadlineExceeded,
                  so_far + " updates that were made are kept and will be sent. " + remedy);
  }
  return Status();
}

Status Waiter::UntilApplied(uint64_t end, const char* what) {
  const auto& sessions = exchange_->sessions();
  const auto unapplied = [end](const Session& session) {
    return session.log().AnyUnapplied([end](const PushFrame& frame) { return frame.number < end; });
  };
  return Until([&] { return std::none_of(sessions.begin(), sessions.end(), unapplied); }, what);
}

Status Waiter::UntilKeptFit() {
  if (durability_->MustWait()) {
    return Until([this] { return !durability_->MustWait(); }, "replicas",
                 "Bring the replicas back, or raise het_tf.Store(keep_bytes=...)");
  }
  durability_->ForgetOldest();
  return Status();
}

}  // namespace het
