#include "het_tf/core/cache/cache_budget.h"

#include <algorithm>
#include <cmath>

#include "het_tf/core/cache/table_cache.h"

namespace het {

void CacheBudget::Leave(TableCache* cache) {
  caches_.erase(std::find(caches_.begin(), caches_.end(), cache));
  Give(cache->marks().resident() * cache->lines().line_bytes());
}

void CacheBudget::MakeRoom(size_t incoming) {
  const auto over = [&] { return used_ + incoming <= bytes_ ? 0 : used_ + incoming - bytes_; };
  size_t need = over();
  if (need == 0) return;
  Vector<size_t> lines(caches_.size());
  for (size_t rank = 0; rank < EvictionPolicy::kRanks && need > 0; ++rank)
    need = ShareOut(rank, need, &lines);
  for (size_t i = 0; i < caches_.size(); ++i) caches_[i]->LetGo(lines[i]);
  // In place of lines that are held.
  for (size_t i = 0; i < caches_.size() && over() > 0; ++i) {
    caches_[i]->LetGo((over() - 1) / caches_[i]->lines().line_bytes() + 1);
  }
}

size_t CacheBudget::ShareOut(size_t rank, size_t need, Vector<size_t>* lines) const {
  size_t left = 0;  // bytes of this rank, of the caches from i on
  for (const TableCache* cache : caches_)
    left += cache->policy().eviction().LinesOfRank(rank) * cache->lines().line_bytes();
  for (size_t i = 0; i < caches_.size() && need > 0; ++i) {
    const size_t all = caches_[i]->policy().eviction().LinesOfRank(rank);
    if (all == 0) continue;
    const size_t line_bytes = caches_[i]->lines().line_bytes();
    const double share = static_cast<double>(need) / static_cast<double>(left);
    left -= all * line_bytes;
    const auto fair = static_cast<size_t>(std::round(share * static_cast<double>(all)));
    // The last one gives what rounding has left.
    const size_t gives = std::min(all, left == 0 ? (need + line_bytes - 1) / line_bytes : fair);
    (*lines)[i] += gives;
    need -= std::min(need, gives * line_bytes);
  }
  return need;
}

}  // namespace het
