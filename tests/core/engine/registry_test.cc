#include "het_tf/core/engine/registry.h"

#include "het_tf/core/engine/engine.h"
#include "tests/testing/status.h"

namespace het {
namespace {

// Whatever a factory throws (out of threads, say), the name must be free for the next call.
TEST(EngineRegistry, AFactoryThatThrowsLeavesTheNameFree) {
  ASSERT_TRUE(SetEngineFactory([](const std::string&, size_t) -> Result<std::shared_ptr<Engine>> {
                throw std::runtime_error("no threads left");
              }).ok());
  EXPECT_TRUE(Fails(GetEngine("unlucky"), Code::kInternal, "no threads left"));
  ASSERT_TRUE(SetEngineFactory(nullptr).ok());
  EXPECT_TRUE(GetEngine("unlucky").ok());
  ResetEngine("unlucky");
}

}  // namespace
}  // namespace het
