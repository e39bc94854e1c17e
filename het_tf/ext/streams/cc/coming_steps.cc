#include "het_tf/ext/streams/cc/coming_steps.h"

#include <algorithm>
#include <utility>

namespace het {

void PlannedStep::SetIds(Span<const FeatureIds> features) {
  ids.clear();
  of_feature.clear();
  for (const FeatureIds& feature : features) {
    ids.insert(ids.end(), feature.ids.begin(), feature.ids.end());
    of_feature.push_back(feature.ids.size());
  }
}

bool PlannedStep::HasIds(Span<const FeatureIds> features) const {
  if (features.size() != of_feature.size()) return false;
  const Key* at = ids.data();
  for (size_t f = 0; f < features.size(); ++f) {
    const Span<const Key> now = features[f].ids;
    if (now.size() != of_feature[f] || !std::equal(now.begin(), now.end(), at)) return false;
    at += now.size();
  }
  return true;
}

std::unique_ptr<PlannedStep> ComingSteps::New() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (spare_.empty()) return std::make_unique<PlannedStep>();
  std::unique_ptr<PlannedStep> step = std::move(spare_.back());
  spare_.pop_back();
  return step;
}

void ComingSteps::Add(uint64_t lane, size_t window, std::unique_ptr<PlannedStep> step) {
  std::lock_guard<std::mutex> lock(mutex_);
  Lane& of = lanes_[lane];
  if (step->cached) {
    std::vector<uint64_t> tables;
    for (const TablePtr& table : step->tables) tables.push_back(table->schema->id());
    step->planned = uses_.Add(step->plan, tables, &step->next);
  }
  of.steps.push_back(std::move(step));
  while (of.steps.size() > window + kBeside) RemoveOldest(&of);
}

ComingSteps::Steps::iterator ComingSteps::Find(Lane* lane, Span<const FeatureIds> features) {
  Steps& steps = lane->steps;
  uint64_t newest = 0;
  for (const auto& step : steps) newest = std::max(newest, GlobalStep::PassOf(step->place));
  const auto find = [&](auto fits) {
    return std::find_if(steps.begin(), steps.end(),
                        [&](const auto& step) { return fits(*step) && step->HasIds(features); });
  };
  auto found = steps.end();
  if (newest != 0) found = find([&](const auto& step) { return step.place == lane->next; });
  // Batches of a pass that was left may have the same ids.
  if (newest != 0 && found == steps.end()) {
    found = find([&](const auto& step) { return GlobalStep::PassOf(step.place) == newest; });
  }
  return found != steps.end() ? found : find([](const auto&) { return true; });
}

ComingSteps::Found ComingSteps::Peek(uint64_t lane, Span<const FeatureIds> features) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto of = lanes_.find(lane);
  if (of == lanes_.end() || of->second.steps.empty() || of->second.steps.back()->place == 0) return {};
  const auto found = Find(&of->second, features);
  if (found == of->second.steps.end()) return {};
  return {true, 0, 0, false, (*found)->place, (*found)->global};
}

ComingSteps::Found ComingSteps::Match(uint64_t lane, Span<const FeatureIds> features, Step* of_lookup) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto of = lanes_.find(lane);
  if (of == lanes_.end()) return {};
  auto& steps = of->second.steps;
  const auto match = Find(&of->second, features);
  if (match == steps.end()) return {false, 0, 0, ++of->second.unplanned == kTellAfter};
  of->second.unplanned = 0;
  of->second.next = (*match)->place + 1;
  std::for_each(steps.begin(), match, [](const auto& older) { ++older->passed_over; });
  std::unique_ptr<PlannedStep> step = std::move(*match);
  steps.erase(match);
  while (!steps.empty() && steps.front()->passed_over > kPassedOver) RemoveOldest(&of->second);
  std::swap(of_lookup->plan, step->plan);
  of_lookup->next_use.swap(step->next);
  const Found found{true, step->number, step->planned, false, step->place, std::move(step->global)};
  Recycle(std::move(step));
  return found;
}

std::shared_ptr<const GlobalStep> ComingSteps::Behind(uint64_t lane, uint64_t place, uint64_t steps) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto of = lanes_.find(lane);
  if (of == lanes_.end()) return nullptr;
  const auto behind = std::find_if(of->second.steps.begin(), of->second.steps.end(),
                                   [=](const auto& step) { return step->place == place + steps; });
  return behind == of->second.steps.end() ? nullptr : (*behind)->global;
}

// Batches that were passed over may never come.
PlannedStep* ComingSteps::NextOf(const Lane& lane) {
  const auto next = std::find_if(lane.steps.begin(), lane.steps.end(),
                                 [](const auto& step) { return step->passed_over == 0; });
  const bool begins = next != lane.steps.end() && (*next)->number == 0 && (*next)->may_begin;
  return begins ? next->get() : nullptr;
}

bool ComingSteps::BeginNext(const std::function<void(PlannedStep*)>& begin) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [lane, of] : lanes_) {
    PlannedStep* const next = NextOf(of);
    if (next == nullptr) continue;
    next->number = steps_->Reserve();
    begin(next);
    return true;
  }
  return false;
}

std::vector<uint64_t> ComingSteps::TakeLeft() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(left_, {});
}

Vector<NextUses::Late> ComingSteps::TakeLate() {
  std::lock_guard<std::mutex> lock(mutex_);
  return uses_.TakeLate();
}

bool ComingSteps::any_to_do() {
  std::lock_guard<std::mutex> lock(mutex_);
  return !left_.empty() || uses_.any_late() ||
         std::any_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return NextOf(lane.second) != nullptr; });
}

void ComingSteps::Clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [lane, of] : lanes_) {
    while (!of.steps.empty()) RemoveOldest(&of);
  }
  lanes_.clear();
  spare_.clear();
  uses_.Clear();
}

void ComingSteps::RemoveOldest(Lane* lane) {
  std::unique_ptr<PlannedStep> step = std::move(lane->steps.front());
  lane->steps.pop_front();
  if (step->number != 0) left_.push_back(step->number);
  Recycle(std::move(step));
}

void ComingSteps::Recycle(std::unique_ptr<PlannedStep> step) {
  uses_.End(step->planned);
  if (spare_.size() >= StepStore::kSpare) return;
  step->number = 0;
  step->planned = 0;
  step->passed_over = 0;
  step->place = 0;
  step->global.reset();
  step->tables.clear();
  spare_.push_back(std::move(step));
}

}  // namespace het
