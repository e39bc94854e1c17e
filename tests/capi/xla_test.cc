// The foreign functions of XLA, called as XLA calls them: with frames that say where its arrays are.
#include "het_tf/capi/xla.h"

#include <gmock/gmock.h>

#include <deque>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "het_tf/capi/management.h"
#include "het_tf/core/base/status.h"

namespace het {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kXlaNamespace[] = "xla";
constexpr int64_t kSlots = 64;

// What XLA's error is made of.
struct Failure {
  int code = 0;
  std::string text;
};
thread_local Failure failure;

xla::Error* MakeError(xla::ErrorArguments* arguments) {
  failure = {arguments->code, arguments->message};
  return reinterpret_cast<xla::Error*>(&failure);
}

// One frame, and what it points to.
class Frame {
 public:
  explicit Frame(std::string specs) : specs_(std::move(specs)) {
    text_ = {specs_.data(), specs_.size()};
    Attribute("specs", xla::kString, &text_);
    Attribute("worker", xla::kScalar, &worker_);
  }

  template <typename T>
  void Argument(xla::Type type, std::vector<int64_t> dims, T* data) {
    Add(&arguments_, type, std::move(dims), data);
  }
  template <typename T>
  void Result(xla::Type type, std::vector<int64_t> dims, T* data) {
    Add(&results_, type, std::move(dims), data);
  }
  void Tokens() {
    Argument<void>(xla::kToken, {}, nullptr);
    Result<void>(xla::kToken, {}, nullptr);
  }
  void Rename(const char* name) { names_[0] = {name, std::string(name).size()}; }
  xla::Buffer& argument(size_t i) { return *static_cast<xla::Buffer*>(arguments_.items[i]); }
  xla::Buffer& result(size_t i) { return *static_cast<xla::Buffer*>(results_.items[i]); }
  void DropArgument() { arguments_.items.pop_back(); }

  int Call(xla::Error* (*function)(xla::Frame*), int stage = xla::kStageOfExecution) {
    const xla::Api api{sizeof(xla::Api), nullptr, {}, nullptr, MakeError};
    std::vector<xla::Text*> names;
    for (xla::Text& name : names_) names.push_back(&name);
    xla::Frame frame{};
    frame.api = &api;
    frame.stage = stage;
    frame.arguments = arguments_.All();
    frame.results = results_.All();
    frame.attributes = {sizeof(xla::Attributes), nullptr,      static_cast<int64_t>(kinds_.size()),
                        kinds_.data(),           names.data(), items_.data()};
    failure = {};
    xla::Error* const error = function(&frame);
    EXPECT_EQ(error == nullptr, failure.code == 0);
    return failure.code;
  }

 private:
  struct Side {
    std::vector<void*> items;
    std::vector<int> kinds;

    xla::Buffers All() {
      kinds.assign(items.size(), xla::kIsBuffer);
      return {sizeof(xla::Buffers), nullptr, static_cast<int64_t>(items.size()), kinds.data(), items.data()};
    }
  };

  void Add(Side* side, xla::Type type, std::vector<int64_t> dims, void* data) {
    std::vector<int64_t>& kept = dims_.emplace_back(std::move(dims));
    side->items.push_back(&buffers_.emplace_back(xla::Buffer{
        sizeof(xla::Buffer), nullptr, type, data, static_cast<int64_t>(kept.size()), kept.data()}));
  }
  void Attribute(const char* name, int kind, void* item) {
    names_.push_back({name, std::string(name).size()});
    kinds_.push_back(kind);
    items_.push_back(item);
  }

  std::string specs_;
  xla::Text text_{};
  int64_t rank_ = 0;
  xla::Scalar worker_{xla::kS64, &rank_};
  std::vector<xla::Text> names_;
  std::vector<int> kinds_;
  std::vector<void*> items_;
  std::deque<xla::Buffer> buffers_;
  std::deque<std::vector<int64_t>> dims_;
  Side arguments_, results_;
};

// Features: ids [2, 2] of 32 bits of a table of dim 2; ids [1] of 64 bits of one of dim 3. One variable.
class CapiXlaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    nlohmann::json tables;
    for (const auto& [name, dim] : {std::pair("a", 2), std::pair("b", 3)}) {
      tables.push_back({{"name", name},
                        {"dim", dim},
                        {"optimizer", {{"name", "sgd"}}},
                        {"initializer", {{"name", "constant"}, {"a", 1.0}}}});
      ASSERT_EQ(HetCreateTable(kXlaNamespace, tables.back().dump().c_str(), "{}"), 0) << HetText();
    }
    specs_ = nlohmann::json({{"namespace", kXlaNamespace},
                             {"tables", tables},
                             {"features", {{{"table", 0}, {"name", "f"}}, {{"table", 1}}}},
                             {"variables", {7, 7}}})
                 .dump();
  }
  void TearDown() override { HetReset(kXlaNamespace); }

  Frame Lookup(bool masked, bool training) {
    Frame frame(specs_);
    frame.Tokens();
    frame.Argument(xla::kS32, {2, 2}, a_);
    frame.Argument(xla::kS64, {1}, b_);
    if (masked) Mask(&frame);
    frame.Result(xla::kF32, {2, 2, 2}, of_a_);
    frame.Result(xla::kF32, {1, 3}, of_b_);
    if (training) frame.Result(xla::kU32, {2}, step_);
    return frame;
  }
  Frame Keep(bool masked) {
    Frame frame(specs_);
    frame.Tokens();
    frame.Argument(xla::kU32, {2}, step_);
    frame.Argument(xla::kF32, {2, 2, 2}, to_a_);
    frame.Argument(xla::kF32, {1, 3}, to_b_);
    frame.Argument(xla::kS32, {2, 2}, a_);
    frame.Argument(xla::kS64, {1}, b_);
    if (masked) Mask(&frame);
    frame.Result(xla::kF32, {kSlots, 2}, tickets_);
    return frame;
  }
  void Mask(Frame* frame) {
    frame->Argument(xla::kPred, {2, 2}, mask_of_a_);
    frame->Argument(xla::kPred, {1}, mask_of_b_);
  }
  Frame Apply() {
    Frame frame(specs_);
    frame.Tokens();
    frame.Argument(xla::kF32, {kSlots, 2}, tickets_);
    frame.Argument(xla::kF32, {2}, rates_);
    return frame;
  }

  std::string specs_;
  int32_t a_[4] = {5, -6, 5, 7};
  int64_t b_[1] = {int64_t{1} << 40};
  bool mask_of_a_[4] = {true, false, true, true}, mask_of_b_[1] = {false};
  float of_a_[8] = {}, of_b_[3] = {}, tickets_[kSlots * 2] = {};
  float rates_[2] = {1, 1};
  float to_a_[8] = {1, 2, 9, 9, 3, 4, 0, 8}, to_b_[3] = {1, 0, 0};
  uint32_t step_[2] = {};
};

TEST_F(CapiXlaTest, AStepUpdatesTheRowsOfItsIds) {
  ASSERT_EQ(Lookup(false, true).Call(HetXlaLookup), 0) << failure.text;
  EXPECT_THAT(of_a_, Each(1.0f));
  EXPECT_THAT(of_b_, Each(1.0f));
  ASSERT_EQ(Keep(false).Call(HetXlaKeep), 0) << failure.text;
  ASSERT_EQ(Apply().Call(HetXlaApply), 0) << failure.text;
  ASSERT_EQ(Lookup(false, false).Call(HetXlaLookup), 0) << failure.text;
  EXPECT_THAT(of_a_, ElementsAre(-3, -5, -8, -8, -3, -5, 1, -7));
  EXPECT_THAT(of_b_, ElementsAre(0, 1, 1));
}

TEST_F(CapiXlaTest, MasksLeaveIdsOut) {
  ASSERT_EQ(Lookup(true, true).Call(HetXlaLookup), 0) << failure.text;
  EXPECT_THAT(of_a_, ElementsAre(1, 1, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(of_b_, Each(0.0f));
  ASSERT_EQ(Keep(true).Call(HetXlaKeep), 0) << failure.text;
  ASSERT_EQ(Apply().Call(HetXlaApply), 0) << failure.text;
  ASSERT_EQ(Lookup(false, false).Call(HetXlaLookup), 0) << failure.text;
  EXPECT_THAT(of_a_, ElementsAre(-3, -5, 1, 1, -3, -5, 1, -7));
  EXPECT_THAT(of_b_, Each(1.0f));
}

TEST_F(CapiXlaTest, AnswersWithTheVersionThatEveryJaxAccepts) {
  xla::Metadata metadata{};
  xla::MetadataExtension extension{{sizeof(xla::MetadataExtension), xla::kIsMetadata, nullptr}, &metadata};
  xla::Extension other{sizeof(xla::Extension), 77, &extension.base};
  xla::Frame frame{};
  frame.extensions = &other;
  metadata.version.major = metadata.version.minor = 9;
  EXPECT_EQ(HetXlaLookup(&frame), nullptr);
  EXPECT_EQ(metadata.version.major, 0);
  EXPECT_EQ(metadata.version.minor, 1);
}

TEST_F(CapiXlaTest, OtherStagesDoNothing) {
  EXPECT_EQ(Lookup(false, false).Call(HetXlaLookup, 0), 0);
  EXPECT_THAT(of_a_, Each(0.0f));
}

// Of each the engine would read or write behind an array's end, or read rows of other ids.
TEST_F(CapiXlaTest, BuffersThatDoNotFitAreRefused) {
  using Change = std::function<void(Frame&)>;
  const std::pair<Change, const char*> lookups[] = {
      {[](Frame& frame) { frame.argument(1).type = xla::kF32; }, "ids of feature 'f' whose type is 11"},
      {[](Frame& frame) { frame.argument(1).dims[0] = 3; }, "a mask of feature 'f'"},
      {[](Frame& frame) { frame.argument(3).dims[0] = 1; }, "a mask of feature 'f'"},
      {[](Frame& frame) { frame.argument(3).type = xla::kS32; }, "a mask of feature 'f'"},
      {[](Frame& frame) { frame.argument(4).rank = 0; }, "a mask of feature '1'"},
      {[](Frame& frame) { frame.result(1).dims[2] = 3; }, "rows of feature 'f'"},
      {[](Frame& frame) { frame.result(1).rank = 2; }, "rows of feature 'f'"},
      {[](Frame& frame) { frame.result(2).type = xla::kU32; }, "rows of feature '1'"},
      {[](Frame& frame) { frame.result(3).dims[0] = 1; }, "other buffers to a lookup"},
      {[](Frame& frame) { frame.DropArgument(); }, "other buffers to a lookup"},
      {[](Frame& frame) { frame.Result(xla::kU32, {2}, frame.result(3).data); }, "other buffers to a lookup"},
      {[](Frame& frame) { frame.Rename("spec"); }, "no specs"},
  };
  for (const auto& [change, text] : lookups) {
    Frame frame = Lookup(true, true);
    change(frame);
    EXPECT_EQ(frame.Call(HetXlaLookup), static_cast<int>(Code::kInvalidArgument));
    EXPECT_THAT(failure.text, HasSubstr(text));
    EXPECT_THAT(of_a_, Each(0.0f));
  }
  ASSERT_EQ(Lookup(true, true).Call(HetXlaLookup), 0);
  const std::pair<Change, const char*> keeps[] = {
      {[](Frame& frame) { frame.argument(1).type = xla::kS32; }, "other buffers to a gradient"},
      {[](Frame& frame) { frame.argument(2).dims[0] = 1; }, "rows of feature 'f'"},
      {[](Frame& frame) { frame.argument(4).type = xla::kU32; }, "ids of feature 'f' whose type is 8"},
      {[](Frame& frame) { frame.argument(6).dims[1] = 1; }, "a mask of feature 'f'"},
      {[](Frame& frame) { frame.result(1).dims[0] = kSlots - 1; }, "other buffers to a gradient"},
      {[](Frame& frame) { frame.DropArgument(); }, "other buffers to a gradient"},
  };
  for (const auto& [change, text] : keeps) {
    Frame frame = Keep(true);
    change(frame);
    EXPECT_EQ(frame.Call(HetXlaKeep), static_cast<int>(Code::kInvalidArgument));
    EXPECT_THAT(failure.text, HasSubstr(text));
    EXPECT_THAT(tickets_, Each(0.0f));
  }
  const Change updates[] = {
      [](Frame& frame) { frame.argument(1).dims[0] = kSlots - 1; },
      [](Frame& frame) { frame.argument(2).dims[0] = 1; },
      [](Frame& frame) { frame.argument(2).type = xla::kS32; },
      [](Frame& frame) { frame.DropArgument(); },
  };
  for (const Change& change : updates) {
    Frame frame = Apply();
    change(frame);
    EXPECT_EQ(frame.Call(HetXlaApply), static_cast<int>(Code::kInvalidArgument));
    EXPECT_THAT(failure.text, HasSubstr("other buffers to an update"));
  }
  Frame wrong("{");
  EXPECT_EQ(wrong.Call(HetXlaLookup), static_cast<int>(Code::kInvalidArgument));
}

TEST_F(CapiXlaTest, ErrorsOfTheEngineAreThoseOfXla) {
  EXPECT_EQ(Keep(false).Call(HetXlaKeep), static_cast<int>(Code::kFailedPrecondition));  // of no step
  HetReset(kXlaNamespace);
  EXPECT_EQ(Lookup(false, false).Call(HetXlaLookup), static_cast<int>(Code::kFailedPrecondition));
  EXPECT_THAT(failure.text, HasSubstr("A lookup never makes a table"));
}

TEST_F(CapiXlaTest, ThreadsMayCallAtOnceWithManySpecs) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1100; ++i) {  // more than stay open
        float a[8] = {}, b[3] = {};
        Frame frame(specs_ + std::string(static_cast<size_t>(i), ' '));
        frame.Argument(xla::kS32, {4}, a_);
        frame.Argument(xla::kS64, {1}, b_);
        frame.Result(xla::kF32, {4, 2}, a);
        frame.Result(xla::kF32, {1, 3}, b);
        ASSERT_EQ(frame.Call(HetXlaLookup), 0) << failure.text;
        EXPECT_THAT(a, Each(1.0f));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace het
