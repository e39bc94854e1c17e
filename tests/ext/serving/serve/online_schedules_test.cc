// Random reads of live tables: bounds hold under faults of network and servers.
#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "tests/ext/serving/serve/live.h"

namespace het::serve {
namespace {

// The store's rows of a key, and the times of their changes.
struct History {
  struct Since {
    double time;
    float version;
  };
  std::vector<Since> rows;     // every row so far, in order
  std::vector<float> lineage;  // the versions that led to the current row, oldest first
};

TEST(OnlineSchedules, KeepTheBounds) {
  for (uint64_t seed = 1; seed <= Scaled(60); ++seed) {
    Random r(seed);
    const bool seconds = r.Chance(0.5);
    const double max_lag = r.Pick<double>({0.001, 1, 20});
    const int64_t bound = r.Pick<int64_t>({0, 1, 3});
    OnlineConfig config = seconds ? MaxLag(max_lag) : PullBound(bound);
    config.cache_rows = r.Pick<size_t>({0, 64, 1000});
    config.deadline = 1000;
    Live live(config, r.Pick<uint32_t>({1, 2, 3, 5, 64}));
    std::map<std::pair<size_t, Key>, History> histories;
    float version = 0;
    ASSERT_EQ(live.ReadOne(0, 1 << 20), live.Initial(0, 1 << 20));  // there is a transport
    FaultyTransport& network = *live.store->transport;
    network.faults = Faults::Some(r.Pick<double>({0, 0.01, 0.1}));
    network.faults.out_of_memory = 0;
    const auto now = [&] { return network.Now(); };
    const auto history = [&](size_t table, Key key) -> History& {
      History& of = histories[{table, key}];
      if (of.rows.empty()) {
        of.rows.push_back({-1e9, live.Initial(table, key)});
        of.lineage.push_back(live.Initial(table, key));
      }
      return of;
    };
    struct Saved {
      Bytes bytes;
      std::map<std::pair<size_t, Key>, std::vector<float>> lineages;
    };
    std::map<uint32_t, Saved> saved;
    for (int step = 0; step < 200; ++step) {
      if (r.Chance(0.5)) {
        for (uint64_t n = r.Below(8); n > 0; --n) {
          const size_t table = r.Below(2);
          const Key key = r.Between(0, 30);
          live.Train(table, key, ++version);
          History& of = history(table, key);
          of.rows.push_back({now(), version});
          of.lineage.push_back(version);
        }
      }
      if (r.Chance(0.2)) live.Pass(r.Unit() * max_lag * 2);
      if (r.Chance(0.05)) {
        const auto p = static_cast<uint32_t>(r.Below(live.service.partitions()));
        saved[p].bytes = live.Snapshot(p);
        saved[p].lineages.clear();
        for (auto& [where, of] : histories) {
          if (live.PartitionOfKey(where) == p) saved[p].lineages[where] = of.lineage;
        }
      }
      if (!saved.empty() && r.Chance(0.05)) {  // a partition restarts from an older state
        const auto& [p, old] = *std::next(saved.begin(), static_cast<ptrdiff_t>(r.Below(saved.size())));
        live.Restart(p, old.bytes);
        for (auto& [where, of] : histories) {
          if (live.PartitionOfKey(where) != p) continue;
          const auto lineage = old.lineages.find(where);
          of.lineage = lineage == old.lineages.end()
                           ? std::vector<float>{live.Initial(where.first, where.second)}
                           : lineage->second;
          of.rows.push_back({now(), of.lineage.back()});
        }
      }
      if (r.Chance(0.02)) {  // a table is emptied
        const size_t table = r.Below(2);
        ASSERT_TRUE(live.trained.ClearTable(*live.schemas[table]).ok());
        saved.clear();
        for (auto& [where, of] : histories) {
          if (where.first != table) continue;
          of.lineage = {live.Initial(table, where.second)};
          of.rows.push_back({now(), of.lineage.back()});
        }
      }
      const size_t table = r.Below(2);
      std::vector<Key> ids(r.Below(20));
      for (Key& key : ids) key = r.Between(0, 30);
      const double began = now();
      std::vector<float> out;
      const Status status = live.Read(table, ids, &out);
      ASSERT_TRUE(status.ok()) << status.message();
      for (size_t i = 0; i < ids.size(); ++i) {
        const History& of = history(table, ids[i]);
        const float got = out[i * kDim];
        bool fine = false;
        if (seconds) {
          for (size_t v = 0; v < of.rows.size(); ++v) {
            const double until = v + 1 < of.rows.size() ? of.rows[v + 1].time : 1e18;
            fine = fine || (of.rows[v].version == got && until >= began - max_lag);
          }
        } else {
          const size_t allowed = std::min<size_t>(of.lineage.size(), static_cast<size_t>(bound) + 1);
          for (size_t v = of.lineage.size() - allowed; v < of.lineage.size(); ++v) {
            fine = fine || of.lineage[v] == got;
          }
        }
        ASSERT_TRUE(fine) << "seed " << seed << ", step " << step << ": table " << table << ", key " << ids[i]
                          << " reads " << got << ", the store has " << of.lineage.back();
      }
    }
    EXPECT_EQ(live.counters().stale, 0u);
  }
}

}  // namespace
}  // namespace het::serve
