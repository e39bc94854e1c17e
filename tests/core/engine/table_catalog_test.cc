// The tables of an engine by name.
#include "het_tf/core/engine/table_catalog.h"

#include <gmock/gmock.h>

#include "tests/testing/status.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::NewSchema;

TEST(TableCatalog, FindsWhatWasAdded) {
  TableCatalog catalog("space");
  EXPECT_THAT(catalog.Find("a").status().message(),
              HasSubstr("'space'; this process has declared none. Build the layer"));
  catalog.Add(NewSchema("b", 2), TableOptions());
  catalog.Add(NewSchema("a", 3), TableOptions());
  EXPECT_THAT(catalog.Names(), ElementsAre("a", "b"));
  EXPECT_EQ(catalog.Find("a").value()->schema->dim(), 3u);
  EXPECT_TRUE(Fails(catalog.Find("c"), Code::kNotFound, "declared 'a', 'b'. Build the layer"));
}

TEST(TableCatalog, GenerationTellsThatTablesCameOrWent) {
  TableCatalog catalog("");
  const uint64_t first = catalog.generation();
  catalog.Add(NewSchema("a", 2), TableOptions());
  const uint64_t second = catalog.generation();
  EXPECT_NE(second, first);
  const TablePtr held = catalog.Find("a").value();
  catalog.Remove("a");
  EXPECT_NE(catalog.generation(), second);
  EXPECT_FALSE(catalog.Find("a").ok());
  EXPECT_EQ(held->schema->dim(), 2u) << "calls that have found it go on with it";
}

}  // namespace
}  // namespace het
