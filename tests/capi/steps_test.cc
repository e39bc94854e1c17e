// The steps of a layer by C functions, as Python calls them without TensorFlow.
#include "het_tf/capi/steps.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "het_tf/capi/management.h"
#include "het_tf/core/base/status.h"

namespace het {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kTicket = size_t{64} * 2;
constexpr char kNamespace[] = "capi";

int CodeOf(Code code) { return static_cast<int>(code); }

// Two tables of one variable each, "a" of dim 2 and "b" of dim 3; features: a, b, and a with a padding id.
class CapiStepsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(HetCreateTable(kNamespace, Spec("a", 2).c_str(), "{}"), 0) << HetText();
    ASSERT_EQ(HetCreateTable(kNamespace, Spec("b", 3).c_str(), "{}"), 0) << HetText();
    nlohmann::json specs = {
        {"namespace", kNamespace},
        {"tables", {nlohmann::json::parse(Spec("a", 2)), nlohmann::json::parse(Spec("b", 3))}},
        {"features",
         {{{"table", 0}, {"padding_id", nullptr}},
          {{"table", 1}, {"padding_id", nullptr}},
          {{"table", 0}, {"padding_id", -1}}}},
        {"variables", {7, 8}}};
    call_ = Open(specs);
    update_ = Open({{"namespace", kNamespace},
                    {"tables", {specs["tables"][0]}},
                    {"features", {{{"table", 0}, {"padding_id", nullptr}}}},
                    {"variables", {7}}});
  }
  void TearDown() override {
    HetCallClose(call_);
    HetCallClose(update_);
    HetReset(kNamespace);
  }

  static std::string Spec(const std::string& name, int dim) {
    return nlohmann::json({{"name", name},
                           {"dim", dim},
                           {"optimizer", {{"name", "sgd"}}},
                           {"initializer", {{"name", "constant"}, {"a", 1.0}}}})
        .dump();
  }
  static void* Open(const nlohmann::json& specs) {
    void* call = nullptr;
    EXPECT_EQ(HetCallOpen(specs.dump().c_str(), &call), 0) << HetText();
    return call;
  }

  int Lookup(uint64_t* token) { return HetCallLookup(call_, ids_, counts_, nullptr, rows_, token); }
  int Keep(uint64_t token, float* tickets) {
    return HetCallKeep(call_, ids_, counts_, nullptr, gradients_, token, 0, tickets);
  }
  int64_t Applies() {
    int64_t counts[2] = {-1, -1};
    EXPECT_EQ(HetCallApplies(call_, counts), 0) << HetText();
    return counts[0] * 10 + counts[1];
  }

  void* call_ = nullptr;
  void* update_ = nullptr;
  const int64_t a_[3] = {5, 6, 5}, b_[1] = {9}, padded_[2] = {6, -1};
  const int64_t* const ids_[3] = {a_, b_, padded_};
  const size_t counts_[3] = {3, 1, 2};
  float of_a_[6] = {}, of_b_[3] = {}, of_padded_[4] = {9, 9, 9, 9};
  float* const rows_[3] = {of_a_, of_b_, of_padded_};
  float to_a_[6] = {1, 2, 0, 0, 3, 4}, to_b_[3] = {}, to_padded_[4] = {0, 0, 100, 100};
  const float* const gradients_[3] = {to_a_, to_b_, to_padded_};
};

TEST_F(CapiStepsTest, TextOfOpenSaysTheSizesOfBuffers) {
  void* call = Open({{"namespace", kNamespace},
                     {"tables", {nlohmann::json::parse(Spec("a", 2)), nlohmann::json::parse(Spec("b", 3))}},
                     {"features", {{{"table", 1}}}},
                     {"variables", {4, 4}}});
  EXPECT_EQ(nlohmann::json::parse(HetText()),
            nlohmann::json({{"features", 1}, {"tables", 2}, {"tickets", kTicket}}));
  HetCallClose(call);
}

TEST_F(CapiStepsTest, OneStepUpdatesEachRowOnceBySumsOfGradients) {
  uint64_t token = 0;
  ASSERT_EQ(Lookup(&token), 0) << HetText();
  EXPECT_NE(token, 0u);
  EXPECT_THAT(of_a_, Each(1.0f));
  EXPECT_THAT(of_padded_, ElementsAre(1, 1, 0, 0));

  std::vector<float> tickets(2 * kTicket);
  ASSERT_EQ(Keep(token, tickets.data()), 0) << HetText();
  EXPECT_EQ(Applies(), 0);  // keeping changes no row
  ASSERT_EQ(Lookup(nullptr), 0);
  EXPECT_THAT(of_a_, Each(1.0f));

  const float rate = 0.5f;
  ASSERT_EQ(HetCallApply(update_, tickets.data(), &rate, 0.5f), 0) << HetText();
  EXPECT_EQ(Applies(), 10);
  ASSERT_EQ(Lookup(nullptr), 0);
  EXPECT_THAT(of_a_, ElementsAre(0, -0.5, 1, 1, 0, -0.5));  // 1 - rate * scale * (1 + 3), (2 + 4)
  EXPECT_THAT(of_b_, Each(1.0f));
  EXPECT_THAT(of_padded_, ElementsAre(1, 1, 0, 0));
}

TEST_F(CapiStepsTest, LookupWithoutTokenRemembersNothing) {
  ASSERT_EQ(Lookup(nullptr), 0);
  std::vector<float> tickets(2 * kTicket, 3);
  EXPECT_EQ(Keep(1, tickets.data()), CodeOf(Code::kFailedPrecondition));
  EXPECT_THAT(tickets, Each(3.0f));
}

TEST_F(CapiStepsTest, BadInputsAreRefusedAndChangeNothing) {
  void* none = nullptr;
  EXPECT_EQ(HetCallOpen("{", &none), CodeOf(Code::kInvalidArgument));
  EXPECT_EQ(none, nullptr);

  uint64_t token = 0;
  ASSERT_EQ(Lookup(&token), 0);
  std::vector<float> tickets(2 * kTicket);
  to_a_[0] = NAN;
  ASSERT_EQ(Keep(token, tickets.data()), 0);
  float rate = 1;
  EXPECT_EQ(HetCallApply(update_, tickets.data(), &rate, 1), CodeOf(Code::kInvalidArgument));
  rate = INFINITY;
  EXPECT_EQ(HetCallApply(update_, tickets.data(), &rate, 1), CodeOf(Code::kInvalidArgument));
  EXPECT_THAT(HetText(), HasSubstr("learning rate of table 'a'"));
  EXPECT_EQ(Applies(), 0);

  const int64_t nan[] = {INT64_MIN};
  const int64_t* const ids[] = {a_, nan, padded_};
  EXPECT_EQ(HetCallLookup(call_, ids, counts_, nullptr, rows_, nullptr), CodeOf(Code::kInvalidArgument));
}

TEST_F(CapiStepsTest, CallOfTablesThatAreGoneIsRefused) {
  HetReset(kNamespace);
  EXPECT_EQ(Lookup(nullptr), CodeOf(Code::kFailedPrecondition));
  EXPECT_THAT(HetText(), HasSubstr("A lookup never makes a table"));
}

TEST_F(CapiStepsTest, ThreadsMayShareACall) {
  const int kSteps =
      15;  // of all threads fewer than 64: a gradient may wait for its thread while others keep theirs
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      float a[6], b[3], padded[4];
      float* const rows[] = {a, b, padded};
      for (int i = 0; i < kSteps; ++i) {
        uint64_t token = 0;
        std::vector<float> tickets(2 * kTicket);
        const float rate = 1.0f / 1024;
        ASSERT_EQ(HetCallLookup(call_, ids_, counts_, nullptr, rows, &token), 0) << HetText();
        ASSERT_EQ(HetCallKeep(call_, ids_, counts_, nullptr, gradients_, token, 0, tickets.data()), 0)
            << HetText();
        ASSERT_EQ(HetCallApply(update_, tickets.data(), &rate, 1), 0) << HetText();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Applies(), 10 * 4 * kSteps);
  ASSERT_EQ(Lookup(nullptr), 0);
  EXPECT_EQ(of_a_[0], 1 - 4 * kSteps * 4 / 1024.0f);
}

}  // namespace
}  // namespace het
