#include "het_tf/core/store/row_classes.h"

#include <algorithm>
#include <new>

namespace het {
namespace {

constexpr uint32_t kStepsOfUnit = 8;
// A row is judged after so many ticks, or units.
constexpr uint32_t kJudgeTicks = 16;
constexpr uint32_t kJudgeUnits = 16;
// Of the rate that makes a row hot, in ticks of four units.
constexpr uint32_t kLeastQuarters = 1;
constexpr uint32_t kMostQuarters = 1u << 16;
// So many requests of others without one of the client whose steps count: it has left.
constexpr uint32_t kSilent = 256;

}  // namespace

void RowClasses::See(ClientId client, uint8_t lookup, size_t share) {
  share_ = std::max<size_t>(share, 1);
  if (!(client == counted_)) {
    if (++others_ < kSilent && !(counted_ == ClientId())) return;
    counted_ = client;
    lookup_ = lookup;
  }
  others_ = 0;
  const auto ahead = static_cast<int8_t>(lookup - lookup_);
  if (ahead <= 0) return;  // a piece of the same lookup, or one that was sent again
  lookup_ = lookup;
  steps_ += static_cast<uint32_t>(ahead);
  if (steps_ / kStepsOfUnit - looked_at_ >= kJudgeUnits) LookAtHot();
}

void RowClasses::Write(uint32_t row, State state, uint32_t ticks) noexcept {
  uint16_t& flags = rows_->meta(row).flags;
  constexpr uint16_t kMask = kStates << kStateAt | kTicks << kTicksAt;
  flags = static_cast<uint16_t>((flags & ~kMask) | state << kStateAt | ticks << kTicksAt);
}

void RowClasses::WriteSince(uint32_t row) noexcept {
  uint16_t& flags = rows_->meta(row).flags;
  const uint32_t since = (steps_ / kStepsOfUnit) & kUnits;
  flags = static_cast<uint16_t>((flags & ~(kUnits << kSinceAt)) | since << kSinceAt);
}

void RowClasses::Count(uint32_t row, uint32_t ticks) noexcept {
  const uint16_t flags = rows_->meta(row).flags;
  const auto state = static_cast<State>((flags >> kStateAt) & kStates);
  if (state == kUnseen) {
    // The ticks of this push are from before: nobody knows since when they were held back.
    WriteSince(row);
    return Write(row, kYoung, 0);
  }
  // No push alone makes a row hot: it may have been held back for long.
  const uint32_t sum = ((flags >> kTicksAt) & kTicks) + std::min<uint32_t>(ticks, kJudgeTicks - 1);
  const uint32_t units = (steps_ / kStepsOfUnit - (flags >> kSinceAt)) & kUnits;
  if (sum < kJudgeTicks && units < kJudgeUnits) return Write(row, state, sum);
  WriteSince(row);
  Write(row, Judge(row, state, sum, units), 0);
}

RowClasses::State RowClasses::Judge(uint32_t row, State before, uint32_t ticks, uint32_t units) noexcept {
  const uint32_t least = units * quarters_;
  if (before == kHot) return 8 * ticks >= least ? kHot : kRare;
  return 4 * ticks >= least && MakeHot(row) ? kHot : kRare;
}

bool RowClasses::MakeHot(uint32_t row) noexcept {
  if (hot_.size() >= share_) {
    ++turned_away_;
    return false;
  }
  try {
    hot_.push_back(row);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void RowClasses::LookAtHot() noexcept {
  looked_at_ = steps_ / kStepsOfUnit;
  std::sort(hot_.begin(), hot_.end());
  const auto last = std::unique(hot_.begin(), hot_.end());  // one that was rare in between is there twice
  hot_.erase(std::remove_if(hot_.begin(), last,
                            [this](uint32_t row) {
                              if (row >= rows_->end() || !rows_->live(row)) return true;
                              const uint16_t flags = rows_->meta(row).flags;
                              if (((flags >> kStateAt) & kStates) != kHot) return true;
                              const uint32_t units = (looked_at_ - (flags >> kSinceAt)) & kUnits;
                              const uint32_t ticks = (flags >> kTicksAt) & kTicks;
                              if (units < 2 * kJudgeUnits || 8 * ticks >= units * quarters_) return false;
                              WriteSince(row);
                              Write(row, kRare, 0);
                              return true;
                            }),
             hot_.end());
  if (turned_away_ > share_ / 16) {
    quarters_ = std::min(quarters_ + (quarters_ + 3) / 4, kMostQuarters);
  } else if (hot_.size() < share_ - share_ / 8) {
    quarters_ = std::max(quarters_ - (quarters_ + 7) / 8, kLeastQuarters);
  }
  turned_away_ = 0;
}

void RowClasses::Set(uint32_t row, bool hot) {
  WriteSince(row);
  Write(row, hot && MakeHot(row) ? kHot : kRare, 0);
}

}  // namespace het
