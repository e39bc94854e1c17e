#include "het_tf/core/engine/client_driver.h"

#include <algorithm>
#include <new>
#include <utility>

namespace het {
namespace {

// Calls in quicker succession look after their pushes themselves.
constexpr double kQuietSeconds = 0.005;
}  // namespace

ClientDriver::ClientDriver(Transport* transport, const ClientConfig& config, bool remote,
                           Lookahead* lookahead)
    : transport_(transport),
      remote_(remote),
      trace_(config.trace),
      lookahead_(lookahead),
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
  if (driver_->lookahead_->has_work()) {
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
  if (calls_ != calls_seen_ && !client_->EarlyOnWay() && !lookahead_->has_work() && !client_->PastAge()) {
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

// Leaves requests in flight to the thread. mutex_ must be held.
void ClientDriver::LeaveToThread() {
  // The thread will look soon anyway; rows for a coming lookup cannot wait.
  if (!asleep_ && background_ != nullptr && background_->started() && !client_->EarlyOnWay()) return;
  if (client_->Busy()) Wake();
}

// If the client is not free, its holder wakes the thread afterwards.
void ClientDriver::BeginIfFree() {
  if (!remote_ || !lookahead_->has_work()) return;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  if (lookahead_->Work(client_.get())) LeaveToThread();  // else the thread waits until one may begin
}

}  // namespace het
