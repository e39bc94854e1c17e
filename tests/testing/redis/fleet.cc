#include "tests/testing/redis/fleet.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "tests/testing/redis/redis_shards.h"

namespace het::testing {

void FleetState::Error(const std::string& what) {
  // Count it when its text is complete: a reader of the count may end this process at once.
  if (!has_text.exchange(true)) std::snprintf(first_error, sizeof(first_error), "%s", what.c_str());
  ++errors;
}

Fleet::Fleet(const ServerAddress& address)
    : address_(address), schema_(TableSchema::Create(RemoteWorker::Spec()).value()) {
  MakeNamespace(address, kPartitions);
  store_ = std::move(het::RedisStore::Open(address, "", 30, nullptr).value());
  EXPECT_TRUE(Ok(store_->CreateTable(schema_)));
}

Fleet::~Fleet() {
  while (!pids_.empty()) Kill(std::string(pids_.begin()->first));
}

void Fleet::Start(const std::string& name) {
  const pid_t pid = fork();
  if (pid != 0) {
    pids_[name] = pid;
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Run(name);
  _exit(0);
}

void Fleet::Signal(const std::string& name, int signal) const {
  EXPECT_EQ(kill(pids_.at(name), signal), 0) << name;
}

void Fleet::Kill(const std::string& name) {
  Signal(name, SIGKILL);
  waitpid(pids_.at(name), nullptr, 0);
  pids_.erase(name);
}

bool Fleet::Await(const char* what, const std::function<bool()>& holds) {
  for (int tries = 0; tries < 60000; ++tries) {
    if (holds() || state().errors > 0) return state().errors == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "five minutes are over: " << what;
  return false;
}

void Fleet::Finish() {
  state().stop = true;
  for (const auto& [name, pid] : std::exchange(pids_, {})) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << name << " ended with " << status;
  }
  EXPECT_EQ(state().errors, 0u) << state().first_error;
}

}  // namespace het::testing
