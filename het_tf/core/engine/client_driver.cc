#include "het_tf/core/engine/client_driver.h"

#include <algorithm>
#include <new>
#include <utility>

namespace het {
namespace {

// Calls in quicker succession look after their pushes themselves.
constexpr double kQuietSeconds = 0.005;
}  // namespace

ClientDriver::ClientDriver(Transport* transport, const ClientConfig& config, bool remote, ComingSteps* coming)
    : transport_(transport),
      remote_(remote),
      trace_(config.trace),
      coming_(coming),
      client_(std::make_unique<Client>(transport, config)),
      background_(std::make_unique<Background>([this] {
        const Background::Pause pause = LookAfterPushes();
        BeginIfFree();
        return pause;
      })) {}

ClientDriver::~ClientDriver() { Stop(); }

void ClientDriver::Stop() {
  std::unique_ptr<Background> ends;  // ends without the lock, which the thread may take
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
  if (driver_->coming_->any_to_do()) {
    driver_->Wake();  // the step continues meanwhile
  } else {
    driver_->LeaveToThread();
  }
}

void ClientDriver::Wake() {
  asleep_ = false;
  if (background_ != nullptr) background_->Wake();
}

Background::Pause ClientDriver::LookAfterPushes() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {  // a call has the client, perhaps for long
    patience_ = std::clamp(2 * patience_, kQuietSeconds, 0.1);
    return {patience_, {}};
  }
  patience_ = 0;
  asleep_ = false;
  if (calls_ != calls_seen_ && !client_->EarlyOnWay() && !coming_->any_to_do() && !client_->PastAge()) {
    calls_seen_ = calls_;
    return {kQuietSeconds, {}};
  }
  try {
    // A search for a server's successor delays calls, which hold the signal back.
    const Interrupts interrupts(Interrupts::By::kOp);
    client_->Progress(0);
    Background::Pause pause;
    if (client_->Busy()) {
      pause.seconds = client_->Due();
      transport_->Descriptors(&pause.descriptors);
    }
    asleep_ = true;
    return pause;
  } catch (const std::bad_alloc&) {  // retried when memory is free
    return {0.1, {}};
  }
}

// Begins planned lookups, and returns whether any has begun. mutex_ must be held.
bool ClientDriver::BeginPlanned() {
  bool any = false;
  for (uint64_t number : coming_->TakeLeft()) client_->EndLookup(number);
  try {
    for (const NextUses::Late& late : coming_->TakeLate())
      client_->SetNextUse(late.table, late.key, late.hash, late.number);
    while (!client_->asking() && coming_->BeginNext([this](PlannedStep* step) { Begin(step); })) any = true;
  } catch (const std::bad_alloc&) {  // the lookup reads the rows
  }
  return any;
}

void ClientDriver::Begin(PlannedStep* step) {
  CachedRead read;
  for (const BatchPlan::Group& group : step->plan.groups()) {
    const uint64_t table = step->tables[group.table]->schema->id();
    if (group.entries == 0) continue;
    if (!client_->HasTable(table)) return;  // the lookup reports it
    read.parts.push_back({table, group.partition, group.uniques, step->plan.keys(group),
                          step->plan.hashes(group), step->plan.rows(group), nullptr});
  }
  client_->ReadEarly(&read, step->number);
}

// Leaves requests in flight to the thread. mutex_ must be held.
void ClientDriver::LeaveToThread() {
  // The thread will look soon anyway; rows for a coming lookup cannot wait.
  if (!asleep_ && background_ != nullptr && background_->started() && !client_->EarlyOnWay()) return;
  if (client_->Busy()) Wake();
}

// If the client is not free, its holder wakes the thread afterwards.
void ClientDriver::BeginIfFree() {
  if (!remote_ || !coming_->any_to_do()) return;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  if (BeginPlanned()) LeaveToThread();  // else the thread waits until one may begin
}

}  // namespace het
