// The client of an engine and its driver: the lock that serializes its use, the thread that continues pushes
// between calls, and lookups that begin early.
//
//   Call       ──lock──► client ──► requests in flight, and lookups that may begin, are left to the thread
//   thread     ──lock, if it is free──► Client::Progress, begin ──► sleep until an answer comes
//   OnPlanned  ──lock, if it is free──► begin; else the thread does, when the current call ends
//
// 1. The thread. Pushes to a remote store continue between calls: the thread handles answers, resends
//    and questions to replicas when no call has come for kQuietSeconds, and sends ticks that reach their
//    age (cache/unsent_ages.h). It takes the lock only if that is free. It waits with the lock only when a
//    server has closed its connection: at most a second for each server that it asks for the successor.
//    Without requests in flight it sleeps until woken. It starts with the first such call; tables in this
//    process need none.
//
// 2. Early lookups (Lookahead::Work) begin on the thread, while the step computes, or on the pipeline's
//    thread, which never waits. A lookup begins when the partitions have notified the client of moved
//    rows, since before that it could trust none. The thread or the next call processes the answers.
//
// Owns the client; borrows the transport and the lookahead. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "het_tf/core/base/background.h"
#include "het_tf/core/base/interrupt.h"
#include "het_tf/core/client/client.h"
#include "het_tf/core/engine/lookahead.h"

namespace het {

class ClientDriver {
 public:
  // `remote`: frames go to other processes, so that there is work between calls.
  ClientDriver(Transport* transport, const ClientConfig& config, bool remote, Lookahead* lookahead);
  // Ends the thread.
  ~ClientDriver();

  // Holds the client for its own lifetime.
  class Lock {
   public:
    explicit Lock(ClientDriver* driver)
        : driver_(driver), interrupts_(Interrupts::By::kOp, driver->remote_), lock_(driver->TakeClient()) {}
    Client* operator->() const { return driver_->client_.get(); }

   protected:
    ClientDriver* const driver_;
    const Interrupts interrupts_;
    std::unique_lock<std::mutex> lock_;
  };
  // For calls of a step: leaves requests in flight to the thread.
  class Call : public Lock {
   public:
    explicit Call(ClientDriver* driver) : Lock(driver) { ++driver_->calls_; }
    ~Call();
  };

  bool remote() const { return remote_; }
  TraceLog* trace() const { return trace_; }
  // For objects made with the client and of the same lifetime; use it only while a Lock is held.
  Client* client() { return client_.get(); }
  // Ends the thread for good, before the client's callbacks become invalid.
  void Stop();

  // Call when a step was planned.
  void OnPlanned() { BeginIfFree(); }

 private:
  std::unique_lock<std::mutex> TakeClient();
  Background::Pause LookAfterPushes();
  void BeginIfFree();
  void LeaveToThread();
  void Wake();

  Transport* const transport_;
  const bool remote_;
  TraceLog* const trace_;
  Lookahead* const lookahead_;
  std::mutex mutex_;  // guards the client, the transport, and what follows
  std::unique_ptr<Client> client_;
  uint64_t calls_ = 0;  // so far
  bool asleep_ = true;  // the thread sleeps until something happens that it knows of
  // The thread's state: the number of calls at its last look, and how long it lets a running call be.
  uint64_t calls_seen_ = 0;
  double patience_ = 0;
  std::unique_ptr<Background> background_;  // null: stopped
};

}  // namespace het
