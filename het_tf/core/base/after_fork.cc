#include "het_tf/core/base/after_fork.h"

#include <pthread.h>

#include <atomic>

namespace het {
namespace {

std::atomic<bool> in_refused_child{false};

}  // namespace

void RefuseInChildren() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { in_refused_child.store(true, std::memory_order_relaxed); });
  static_cast<void>(registered);
}

bool InRefusedChild() { return in_refused_child.load(std::memory_order_relaxed); }

Status CheckNotInChild() {
  if (!InRefusedChild()) return Status();
  return FailedPrecondition(
      "this process was forked from one that uses het_tf, and cannot use it: threads, connections and GPU "
      "are "
      "the parent's. Start children with spawn (multiprocessing.set_start_method(\"spawn\")), or use het_tf "
      "only in the child");
}

}  // namespace het
