// Engine: the tokens between a lookup and its gradient, and the plans that wait with them.
#include <algorithm>

#include "het_tf/core/client/client.h"
#include "het_tf/core/device/device_tables.h"
#include "het_tf/core/engine/engine.h"
#include "het_tf/core/plan/step.h"

namespace het {
namespace {

// Tokens whose plan is kept; an older one still works, its plan is built again.
constexpr size_t kPlansKept = 8;
// Tokens that may wait for their gradient; older ones are forgotten.
constexpr size_t kTokensKept = 65536;

}  // namespace

std::unique_ptr<Step> Engine::NewStep() {
  std::lock_guard<std::mutex> lock(tokens_mutex_);
  if (spare_.empty()) return std::make_unique<Step>();
  std::unique_ptr<Step> step = std::move(spare_.back());
  spare_.pop_back();
  return step;
}

void Engine::Recycle(std::unique_ptr<Step> step) {
  if (step == nullptr) return;
  std::lock_guard<std::mutex> lock(tokens_mutex_);
  if (spare_.size() < 4) spare_.push_back(std::move(step));
}

uint64_t Engine::ReserveToken() {
  std::lock_guard<std::mutex> lock(tokens_mutex_);
  return next_token_++;
}

void Engine::Remember(uint64_t token, std::unique_ptr<Step> step) {
  std::lock_guard<std::mutex> lock(tokens_mutex_);
  if (step != nullptr) {
    ++plans_pending_;
    oldest_plan_ = std::min(oldest_plan_, token);
  }
  pending_[token] = std::move(step);
  // The oldest tokens lose their plans, and at last their right to be used.
  for (auto it = pending_.lower_bound(oldest_plan_); plans_pending_ > kPlansKept; ++it) {
    oldest_plan_ = it->first + 1;
    if (it->second == nullptr) continue;
    if (spare_.size() < 4) spare_.push_back(std::move(it->second));
    it->second = nullptr;
    --plans_pending_;
  }
  while (pending_.size() > kTokensKept) pending_.erase(pending_.begin());
}

Status Engine::Consume(uint64_t token, std::unique_ptr<Step>* step) {
  std::lock_guard<std::mutex> lock(tokens_mutex_);
  const auto it = pending_.find(token);
  if (it == pending_.end()) {
    return FailedPrecondition(
        "HetApplyGrad: token " + std::to_string(token) +
        (token == 0 || token >= next_token_
             ? " was not given by a training lookup of this process"
             : " was used before: one lookup's gradient can be applied once. Compute the gradient once per "
               "lookup "
               "(no persistent tape with two gradient() calls), or call the layer again"));
  }
  *step = std::move(it->second);
  if (*step != nullptr) --plans_pending_;
  pending_.erase(it);
  return Status();
}

void Engine::Release(uint64_t token) {
  std::lock_guard<std::mutex> lock(client_mutex_);
  client_->Unpin(token);
  device_->Release(token);
}

}  // namespace het
