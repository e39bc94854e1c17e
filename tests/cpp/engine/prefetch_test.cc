// Engine::Prefetch beside lookups, with a store in this process that is reached like a server.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "het_tf/core/client/client.h"
#include "het_tf/core/engine/engine.h"
#include "het_tf/core/store/local_service.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"

namespace het {
namespace {

class TransportWithHook : public LocalTransport {
 public:
  TransportWithHook(LocalService* service, std::function<void()> after_send)
      : LocalTransport(service), after_send_(std::move(after_send)) {}
  void Send(OutFrame frame) override {
    LocalTransport::Send(std::move(frame));
    after_send_();
  }

 private:
  const std::function<void()> after_send_;
};

// Whenever a frame goes out, another thread prefetches one more batch, which makes for one more frame: the
// queue is never empty for whoever empties it.
TEST(EnginePrefetchTest, ALookupIsNoServantOfThreadsThatPrefetchWithoutEnd) {
  constexpr int kEnd = 400;
  LocalService service(1, 1, [] { return 0; });
  const std::thread::id looks_up = std::this_thread::get_id();
  std::atomic<int> batches{0};
  std::atomic<bool> on{false};
  int sent_by_lookup = 0;
  std::function<void(int64_t)> prefetch;
  Engine engine("", 1, std::make_unique<LocalStore>(&service),
                std::make_unique<TransportWithHook>(&service,
                                                    [&] {
                                                      if (!on) return;
                                                      if (std::this_thread::get_id() == looks_up)
                                                        ++sent_by_lookup;
                                                      const int batch = ++batches;
                                                      if (batch > kEnd) return;
                                                      std::thread([&] { prefetch(1000 + batch); }).join();
                                                    }),
                ClientConfig());
  TableSpec spec;
  spec.name = "t";
  spec.dim = 2;
  spec.initializer = {"constant", 7, 0};
  TableOptions options;
  options.cache = CacheConfig();
  options.cache->capacity = 10 * kEnd;
  ASSERT_TRUE(engine.CreateTable(spec, options).ok());
  const TablePtr table = engine.Find("t").value();
  prefetch = [&](int64_t id) {
    const FeatureIds feature{0, Span<const int64_t>(&id, 1), std::nullopt};
    const Status status =
        engine.Prefetch({Span<const TablePtr>(&table, 1), Span<const FeatureIds>(&feature, 1)}, 0);
    EXPECT_TRUE(status.ok()) << status.message();
  };

  const int64_t id = 1;
  const FeatureIds feature{0, Span<const int64_t>(&id, 1), std::nullopt};
  float row[2] = {0, 0};
  float* const out[] = {row};
  on = true;
  const Status status = engine.Lookup({Span<const TablePtr>(&table, 1), Span<const FeatureIds>(&feature, 1)},
                                      Span<float* const>(out, 1), nullptr);
  const int sent = sent_by_lookup;
  on = false;
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(row[0], 7);
  EXPECT_GE(sent, 1);
  EXPECT_LT(sent, 20);
}

}  // namespace
}  // namespace het
