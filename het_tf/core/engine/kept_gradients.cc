#include "het_tf/core/engine/kept_gradients.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace het {
namespace {

// A gradient of zeros has a ticket too, which is applied like any other: all workers then take part. Its
// square is 0, so no norm contains it.
constexpr double kLeast = 1e-24;
// The difference of two factors of a ticket whose numbers were only scaled. Neighbouring workers' directions
// differ by more.
constexpr float kRounding = 1e-5f;

// Workers, and the gradients that follow each other in a slot, have different directions: multiples of the
// golden ratio are apart. Neither component is small.
std::array<double, 2> DirectionOf(uint64_t worker, uint64_t turn) {
  const double part =
      std::fmod(0.5 + static_cast<double>((31 * worker + turn) % 4096) * 0.6180339887498949, 1.0);
  const double angle = 0.35 + 0.8 * part;
  return {std::cos(angle), std::sin(angle)};
}

bool Near(float a, float b) { return std::abs(a - b) <= kRounding * std::abs(a); }

}  // namespace

void KeptGradients::Drop(uint64_t variable, const Kept& one) {
  for (size_t t = 0; t < one.gradient->tables.size(); ++t) {
    if (one.gradient->variables[t] == variable) one.gradient->tables[t]->dropped.fetch_add(1);
  }
}

bool KeptGradients::Slot::Match(uint32_t slot, const Ticket& came, std::vector<Chosen>* chosen) const {
  for (size_t from = 0; from < kept.size(); ++from) {
    Ticket sum = {};  // as it is when they are added in their order
    size_t end = 0;
    float factor = 0;
    for (size_t to = from; to < kept.size(); ++to) {
      for (size_t i = 0; i < 2; ++i) sum[i] += kept[to].ticket[i];
      if (!Near(came[0] / sum[0], came[1] / sum[1])) continue;
      end = to + 1;
      factor = came[0] / sum[0];
    }
    if (end == 0) continue;
    for (size_t k = from; k < end && chosen != nullptr; ++k)
      chosen->push_back({kept[k].gradient, factor, slot});
    return true;
  }
  return false;
}

KeptGradients::Given KeptGradients::Keep(uint64_t variable, Ptr gradient, double norm, uint32_t worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Variable& of = variables_[variable];
  for (const TablePtr& table : gradient->tables) {
    const uint64_t id = table->schema->id();
    if (std::find(of.tables.begin(), of.tables.end(), id) == of.tables.end()) of.tables.push_back(id);
  }
  Given given;
  for (Slot& slot : of.slots) {
    if (slot.kept.empty()) continue;
    slot.kept.erase(std::remove_if(slot.kept.begin(), slot.kept.end(), [](auto& one) { return one.applied; }),
                    slot.kept.end());
    for (Kept& one : slot.kept) {
      KeptGradient& older = *one.gradient;
      if (older.step != nullptr) CollectSums(older.tables, older.step.get(), &older.sums);
      older.step.reset();
      // A device would hold the rows of its lookup.
      if (one.number + 1 == of.kept) given.left.push_back(older.number);
    }
  }
  given.slot = static_cast<uint32_t>(of.kept % kSlots);
  Slot& slot = of.slots[given.slot];
  while (!slot.kept.empty() && (slot.kept[0].number < of.step || slot.kept.size() == kTurns)) {
    given.left.push_back(slot.kept[0].gradient->number);
    Drop(variable, slot.kept[0]);
    slot.kept.erase(slot.kept.begin());
  }
  slot.worker = worker;
  slot.kept.push_back({nullptr, {}, of.kept});
  Kept& one = slot.kept.back();
  const std::array<double, 2> direction = DirectionOf(worker, slot.turn());
  const double length = gradient->bad.ok() ? std::max(norm, kLeast) : std::nan("");
  for (size_t i = 0; i < 2; ++i) one.ticket[i] = static_cast<float>(length * direction[i]);
  one.gradient = std::move(gradient);
  given.ticket = one.ticket;
  ++of.kept;
  return given;
}

Result<std::vector<KeptGradients::Chosen>> KeptGradients::Choose(uint64_t variable, const std::string& what,
                                                                 Span<const float> tickets) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Chosen> chosen;
  Variable* const of = variables_.count(variable) == 0 ? nullptr : &variables_[variable];
  const auto finite = [](float x) { return std::isfinite(x); };
  if (!std::all_of(tickets.begin(), tickets.end(), finite)) {
    for (size_t s = 0; s < kSlots && of != nullptr; ++s) {
      const Slot& slot = of->slots[s];
      const bool here = !finite(tickets[2 * s]) || !finite(tickets[2 * s + 1]);
      for (const Kept& one : slot.kept) {
        if (here) HET_RETURN_IF_ERROR(one.gradient->bad);
      }
    }
    return FailedPrecondition("a gradient of " + what +
                              " at another worker, or the factor of this one's, is NaN or Inf; no row was "
                              "changed. Lower the learning rate, clip the loss, or check the inputs");
  }
  const auto not_kept = [&] {
    return FailedPrecondition(
        "a gradient of " + what + " is applied that is not kept any more: of each layer the newest " +
        std::to_string(kSlots) +
        " gradients of this process are kept, until a table is dropped, and one that "
        "was applied only until its layer's next lookup for training. Apply a gradient in the process that "
        "took it, before " +
        std::to_string(kSlots) + " others; no row was changed");
  };
  for (uint32_t s = 0; s < kSlots; ++s) {
    const Ticket came = {tickets[size_t{2} * s], tickets[size_t{2} * s + 1]};
    if (came[0] == 0 && came[1] == 0) continue;
    Slot* const slot = of == nullptr ? nullptr : &of->slots[s];
    if (slot == nullptr || slot->kept.empty()) return not_kept();
    if (slot->Match(s, came, &chosen)) continue;
    if (slot->Match(s, {came[1], came[0]}, nullptr)) {
      return FailedPrecondition(
          "nothing reduces the dense gradients of the model with " + what +
          " over the workers: every rank would train a different model. Call "
          "het_tf.workers.distribute(model) before fit, or pass the gradients of your own loop through "
          "het_tf.workers.reduce_gradients (not through Horovod's own optimizer or tape); no row was "
          "changed");
    }
    for (uint64_t ago = 1; ago <= std::min<uint64_t>(slot->turn(), kSlots); ++ago) {
      const std::array<double, 2> older = DirectionOf(slot->worker, slot->turn() - ago);
      if (Near(came[0] / static_cast<float>(older[0]), came[1] / static_cast<float>(older[1])))
        return not_kept();
    }
    if (slot->kept.size() > 1) {
      return FailedPrecondition(
          "the gradient of " + what + " adds up those of more than " + std::to_string(kSlots) +
          " calls: of a step, the newest " + std::to_string(kTurns * kSlots) +
          " may be added, all with one factor. Add up losses before their gradient is taken, or update more "
          "often; no row was changed");
    }
    return InvalidArgument(
        "the gradient of " + what +
        " was changed in a way that is not linear, or averaged over workers: it stands for the rows' "
        "gradients, which may be added, scaled and clipped by their norm, but not by their values, nor "
        "replaced by their signs. Limit rows by max_norm= of the TableConfig; average over workers by "
        "het_tf.workers.distribute or reduce_gradients, which leave it alone; no row was changed");
  }
  return chosen;
}

void KeptGradients::Forget(uint64_t table) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto one = variables_.begin(); one != variables_.end();) {
    const std::vector<uint64_t>& tables = one->second.tables;
    const bool has = std::find(tables.begin(), tables.end(), table) != tables.end();
    one = has ? variables_.erase(one) : std::next(one);
  }
}

void KeptGradients::DropApplied(uint64_t layer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [number, variable] : variables_) {
    if (!std::exchange(variable.any_applied, false)) continue;
    for (Slot& slot : variable.slots) {
      const auto leaves = [layer](const Kept& one) { return one.applied && one.gradient->layer == layer; };
      slot.kept.erase(std::remove_if(slot.kept.begin(), slot.kept.end(), leaves), slot.kept.end());
      for (const Kept& one : slot.kept) variable.any_applied = variable.any_applied || one.applied;
    }
  }
}

void KeptGradients::SetApplied(uint64_t variable, const std::vector<Chosen>& chosen) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Variable& of = variables_[variable];
  for (const Chosen& chose : chosen) {
    for (Kept& one : of.slots[chose.slot].kept) {
      if (one.gradient != chose.gradient) continue;  // it was dropped meanwhile
      one.applied = of.any_applied = true;
      of.step = std::max(of.step, one.number + 1);
    }
  }
}

}  // namespace het
