// What the engine's calls have in common.
#ifndef HET_TF_CORE_ENGINE_ENGINE_CALL_H_
#define HET_TF_CORE_ENGINE_ENGINE_CALL_H_

#include <mutex>
#include <string>

#include "het_tf/core/client/client.h"
#include "het_tf/core/engine/engine.h"

namespace het {

class Engine::ClientCall {
 public:
  explicit ClientCall(Engine* engine) : engine_(engine), lock_(engine->client_mutex_) { ++engine_->calls_; }
  ~ClientCall() {
    if (!engine_->remote()) return;
    engine_->StartPrefetches();
    engine_->LeaveToBackground();
    lock_.unlock();
    engine_->ServePrefetches();
  }

 private:
  Engine* const engine_;
  std::unique_lock<std::mutex> lock_;
};

inline Status OutOfMemory(const char* during) {
  return Status(Code::kResourceExhausted,
                std::string("out of memory during ") + during +
                    "; no row was changed. Use fewer rows, a smaller dim, or a machine with more memory");
}

// InvalidArgument: too many ids for one call.
Status CheckIds(const BatchCall& call);

}  // namespace het

#endif  // HET_TF_CORE_ENGINE_ENGINE_CALL_H_
