// The client of an engine, with what drives it: the lock that lets one call use it at a time, the
// thread that moves pushes on between calls, and the lookups that begin early.
//
//   Call       ──lock──► client ──► what is on its way, and lookups that may begin, are the thread's
//   thread     ──lock, if it is free──► Client::Progress, begin ──► sleep until an answer comes
//   OnPlanned  ──lock, if it is free──► begin; else the thread does, when the call that has it ends
//
// 1. The thread. Pushes to a remote store move on between calls too: the thread looks after
//    answers, resends and questions to replicas once no call has come for kQuietSeconds. It takes
//    the lock only if that is free, and holds it while it waits only where a server has closed its
//    connection: a second at most for each server that it asks who took over. It sleeps without an
//    end when nothing is on its way. It starts with the first such call; where tables live in this
//    process there is none.
//
// 2. Early lookups (coming_steps.h) begin on the thread, while the step computes, or on the pipeline's
//    thread, which waits neither for the client nor for the network. A lookup begins when the partitions
//    have said what has moved, since it could trust no row before. Answers are taken in by the thread,
//    or by the next call.
//
// Owns the client; borrows the transport and the coming steps. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "het_tf/core/base/background.h"
#include "het_tf/core/client/client.h"
#include "het_tf/core/engine/coming_steps.h"

namespace het {

class ClientDriver {
 public:
  // `remote`: frames go to other processes, so there is something to look after between calls.
  ClientDriver(Transport* transport, const ClientConfig& config, bool remote, ComingSteps* coming);
  // Ends the thread.
  ~ClientDriver();

  // The client for as long as it lives, and no more than that.
  class Lock {
   public:
    explicit Lock(ClientDriver* driver) : driver_(driver), lock_(driver->TakeClient()) {}
    Client* operator->() const { return driver_->client_.get(); }

   protected:
    ClientDriver* const driver_;
    std::unique_lock<std::mutex> lock_;
  };
  // For calls of a step: what is on its way afterwards is left to the thread.
  class Call : public Lock {
   public:
    explicit Call(ClientDriver* driver) : Lock(driver) { ++driver_->calls_; }
    ~Call();
  };

  bool remote() const { return remote_; }
  TraceLog* trace() const { return trace_; }
  // For what is made with the client and lives as long; used while a Lock is held.
  Client* client() { return client_.get(); }
  // Ends the thread for good: what the client calls back is about to go.
  void Stop();

  // A step was planned.
  void OnPlanned() { BeginIfFree(); }

 private:
  std::unique_lock<std::mutex> TakeClient();
  Background::Pause LookAfterPushes();
  bool BeginPlanned();
  void Begin(PlannedStep* step);
  void BeginIfFree();
  void LeaveToThread();
  void Wake();

  Transport* const transport_;
  const bool remote_;
  TraceLog* const trace_;
  ComingSteps* const coming_;
  std::mutex mutex_;  // guards the client, the transport, and what follows
  std::unique_ptr<Client> client_;
  uint64_t calls_ = 0;  // so far
  bool asleep_ = true;  // the thread sleeps until something happens that it knows of
  // Of the thread: how many calls there were when it looked, and how long it leaves a running call
  // alone.
  uint64_t calls_seen_ = 0;
  double patience_ = 0;
  std::unique_ptr<Background> background_;  // null: stopped
};

}  // namespace het
