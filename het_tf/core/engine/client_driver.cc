#include "het_tf/core/engine/client_driver.h"

#include <algorithm>
#include <new>
#include <utility>

namespace het {
namespace {

// Calls that come closer after one another look after their pushes themselves.
constexpr double kQuietSeconds = 0.005;
// A call starts what others prefetch meanwhile, but it is no servant of threads that add faster
// than it starts: what is left after so many rounds is the thread's.
constexpr int kRounds = 4;

}  // namespace

ClientDriver::ClientDriver(Transport* transport, const ClientConfig& config, bool remote)
    : transport_(transport),
      remote_(remote),
      trace_(config.trace),
      client_(std::make_unique<Client>(transport, config)),
      background_(std::make_unique<Background>([this] {
        Background::Pause pause = LookAfterPushes();
        ServePrefetches();
        return pause;
      })) {}

ClientDriver::~ClientDriver() { Stop(); }

void ClientDriver::Stop() {
  std::unique_ptr<Background> ends;  // without the lock, which the thread may take
  const std::lock_guard<std::mutex> lock(mutex_);
  ends = std::move(background_);
}

std::unique_lock<std::mutex> ClientDriver::TakeClient() {
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) return lock;
  const TraceScope locking(trace_, TraceKind::kLock);
  lock.lock();
  return lock;
}

ClientDriver::Call::~Call() {
  if (!driver_->remote_) return;
  driver_->StartPrefetches();
  driver_->LeaveToThread();
  lock_.unlock();
  driver_->ServePrefetches();
}

void ClientDriver::Wake() {
  asleep_ = false;
  if (background_ != nullptr) background_->Wake();
}

Background::Pause ClientDriver::LookAfterPushes() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {  // a call is at it, and may be for long
    patience_ = std::clamp(2 * patience_, kQuietSeconds, 0.1);
    return {patience_, {}};
  }
  patience_ = 0;
  asleep_ = false;
  if (calls_ != calls_seen_ && !client_->AheadOnWay()) {
    calls_seen_ = calls_;
    return {kQuietSeconds, {}};
  }
  try {
    client_->Progress(0);
    Background::Pause pause;
    if (client_->Busy()) {
      pause.seconds = client_->Due();
      transport_->Descriptors(&pause.descriptors);
    }
    asleep_ = true;
    return pause;
  } catch (const std::bad_alloc&) {  // it goes on when there is room
    return {0.1, {}};
  }
}

void ClientDriver::Prefetch(std::unique_ptr<ComingBatch> batch) {
  prefetches_.Add(std::move(batch));
  ServePrefetches();
}

// Starts what is in the queue. mutex_ is held.
void ClientDriver::StartPrefetches() {
  for (std::unique_ptr<ComingBatch>& batch : prefetches_.TakeAll()) {
    try {
      CachedRead wanted;
      wanted.check_ahead = batch->check_ahead;
      for (const BatchPlan::Group& group : batch->plan.groups()) {
        const Table& table = *batch->tables[group.table];
        if (group.entries == 0 || !table.options.cache) continue;
        if (!client_->HasTable(table.schema->id())) continue;
        wanted.parts.push_back({table.schema->id(), group.partition, group.uniques, batch->plan.keys(group),
                                batch->plan.hashes(group), batch->plan.rows(group), nullptr});
      }
      client_->ReadAhead(wanted);
    } catch (const std::bad_alloc&) {  // the lookup fetches the rows
    }
  }
}

// The thread is to take in what this call has left on its way. mutex_ is held.
void ClientDriver::LeaveToThread() {
  // It will look soon anyway, but for rows that a lookup will wait for.
  if (!asleep_ && background_ != nullptr && background_->started() && !client_->AheadOnWay()) return;
  if (client_->Busy()) Wake();
}

void ClientDriver::ServePrefetches() {
  for (int round = 1; round <= kRounds && !prefetches_.empty(); ++round) {
    // Where it is not free, its holder finds the batch afterwards.
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    StartPrefetches();
    if (round < kRounds) {
      LeaveToThread();
    } else {
      Wake();
    }
  }
}

}  // namespace het
