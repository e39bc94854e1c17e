// The effects of a table's spec on a row: L2, max-norm, names; and its JSON round trip.
#include "het_tf/core/row/schema.h"

#include "tests/testing/status.h"
#include "tests/testing/table_specs.h"

namespace het {
namespace {

TableSpec Spec(const std::string& optimizer = "sgd") { return testing::NewSpec("t", 3, optimizer); }

Schema Make(const TableSpec& spec) { return TableSchema::Create(spec).value(); }

TEST(Schema, L2AddsTwiceTheRow) {
  TableSpec spec = Spec();
  spec.l2 = 0.25;
  float row[] = {2, -4, 0};
  float g[] = {1, 1, 1};
  Make(spec)->Tick(0.5f, g, 0, row, nullptr);
  EXPECT_FLOAT_EQ(row[0], 2 - 0.5f * (1 + 2 * 0.25f * 2));
  EXPECT_FLOAT_EQ(row[1], -4 - 0.5f * (1 - 2 * 0.25f * 4));
  EXPECT_FLOAT_EQ(row[2], -0.5f);
}

TEST(Schema, MaxNormScalesBackAndTellsTheUpdate) {
  TableSpec spec = Spec();
  spec.max_norm = 5;
  float row[] = {0, 0, 0};
  float update[] = {0, 0, 0};
  float g[] = {-30, -40, 0};
  Make(spec)->Tick(1, g, 0, row, update);
  EXPECT_FLOAT_EQ(row[0], 3);
  EXPECT_FLOAT_EQ(row[1], 4);
  // The store merges the update without knowing the norm, and gets the same row.
  float server[] = {0, 0, 0};
  Make(spec)->optimizer().MergeInto(update, 1, server);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(server[i], row[i], 1e-5);
  float inside[] = {3, 3.9f, 0};
  float zero[] = {0, 0, 0};
  Make(spec)->Tick(1, zero, 0, inside, nullptr);
  EXPECT_FLOAT_EQ(inside[1], 3.9f);
}

TEST(Schema, JsonThereAndBack) {
  TableSpec spec = Spec("adam");
  spec.optimizer.params["beta_1"] = 0.8;
  spec.initializer = {"normal", 0.5, 2};
  spec.seed = ~uint64_t{0};
  spec.l2 = 0.125;
  const std::string json = Make(spec)->ToJson();
  const auto parsed = ValueOf(ParseTableSpec(json));
  EXPECT_EQ(Make(parsed)->ToJson(), json);
  EXPECT_EQ(parsed.seed, ~uint64_t{0});
}

TEST(Schema, DrawnAsUsesAnotherTablesInitialRows) {
  TableSpec spec = Spec();
  spec.name = "t@2";
  float other[3], of_t[3], drawn[3];
  Make(spec)->InitValue(7, other);
  Make(Spec())->InitValue(7, of_t);
  spec.drawn_as = "t";
  const Schema schema = Make(ParseTableSpec(Make(spec)->ToJson()).value());
  schema->InitValue(7, drawn);
  EXPECT_EQ(schema->id(), HashName("t@2"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(drawn[i], of_t[i]);
    EXPECT_NE(drawn[i], other[i]);
  }
}

struct Bad {
  const char* json;
  const char* names;  // what the message must contain
};

class BadSpec : public ::testing::TestWithParam<Bad> {};

TEST_P(BadSpec, IsRefusedByName) {
  auto spec = ParseTableSpec(GetParam().json);
  Status status = spec.status();
  if (spec.ok()) status = TableSchema::Create(spec.value()).status();
  EXPECT_TRUE(Fails(status, Code::kInvalidArgument, GetParam().names));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadSpec,
    ::testing::Values(Bad{"{", "JSON"}, Bad{R"({"name": 3})", "JSON"},
                      Bad{R"({"name": "t", "dim": 0})", "dim"}, Bad{R"({"name": "t", "dim": -1})", "-1"},
                      Bad{R"({"name": "t", "dim": 70000})", "70000"},
                      Bad{R"({"name": "t", "dim": 6.5e28})", "dim is 6.5e+28"},
                      Bad{R"({"name": "t", "dim": 2.0})", "dim is 2.0"},
                      Bad{R"({"name": "t", "dim": 2, "seed": 1e30})", "seed is 1e+30"},
                      Bad{R"({"name": "t", "dim": 2, "seed": -1})", "seed is -1"},
                      Bad{R"({"name": "t", "dim": 2, "limits": {"ttl": 6.4e28}})", "ttl is 6.4e+28"},
                      Bad{R"({"name": "t", "dim": 2, "limits": {"max_rows": -1}})", "max_rows is -1"},
                      Bad{R"({"name": "", "dim": 2})", "empty"},
                      Bad{R"({"name": "t", "dim": 2, "l2": -1})", "l2"},
                      Bad{R"({"name": "t", "dim": 2, "max_norm": -1})", "max_norm"},
                      Bad{R"({"name": "t", "dim": 2, "colour": 1})", "colour"},
                      Bad{R"({"name": "t", "dim": 2, "optimizer": {"name": "adm"}})", "adm"},
                      Bad{R"({"name": "t", "dim": 2, "optimizer": {"name": "ftrl"}, "max_norm": 1})", "ftrl"},
                      Bad{R"({"name": "t", "dim": 2, "initializer": {"name": "zeroes"}})", "zeroes"}));

TEST(Schema, DifferentFieldsAreNamedAlone) {
  TableSpec wanted = Spec("adam");
  wanted.dim = 4;
  EXPECT_EQ(DifferentFields(Make(Spec("adam"))->ToJson(), Make(wanted)->ToJson()),
            "dim is 3, and 4 is wanted");
  EXPECT_EQ(DifferentFields(R"({"cache": {"rows": 5, "wire": "int8"}})", R"({"cache": {"rows": 5}})"),
            "cache.wire is \"int8\", and none is wanted");
  EXPECT_EQ(DifferentFields(R"({"a": {}})", R"({"a": {}})"), "");
}

// Printing a deeply nested value would end the process: it takes a stack frame a level.
TEST(Schema, ADeeplyNestedSpecIsRefused) {
  for (const std::string field : {"dim", "seed", "name", "optimizer", "limits", "colour"}) {
    const std::string deep(200000, '[');
    const std::string json = "{\"" + field + "\": " + deep + std::string(deep.size(), ']') + "}";
    EXPECT_TRUE(Fails(ParseTableSpec(json), Code::kInvalidArgument, "nested too deeply"));
  }
}

}  // namespace
}  // namespace het
