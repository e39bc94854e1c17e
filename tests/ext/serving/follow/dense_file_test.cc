// Files of dense weights come from a server: whatever their bytes, they are read right or refused.
#include "het_tf/ext/serving/cc/follow/dense_file.h"

#include "tests/testing/temp_folder.h"

namespace het::follow {
namespace {

class DenseFileTest : public het::testing::FolderTest {
 protected:
  Result<std::shared_ptr<const DenseFile>> Open(const std::string& bytes) const {
    het::testing::PutFile(path_, bytes);
    return DenseFile::Open(path_);
  }
  static std::string Bytes(std::string header, size_t tensors) {
    header.resize((header.size() + 8 + 63) / 64 * 64 - 8, ' ');
    const uint64_t length = header.size();
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
    return bytes + header + std::string(tensors, '\1');
  }

  const std::string path_ = Path("dense");
};

TEST_F(DenseFileTest, TensorsAreFoundByName) {
  const auto file = Open(Bytes(R"({"__metadata__": {"a": "b"},
      "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [64, 88]},
      "none": {"dtype": "I64", "shape": [0, 5], "data_offsets": [88, 88]},
      "flag": {"dtype": "BOOL", "shape": [], "data_offsets": [0, 1]}})",
                               88));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const DenseFile::Tensor* const w = file.value()->Find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->dtype, "F32");
  EXPECT_EQ(w->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(w->bytes.size(), 24u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(w->bytes.data()) % DenseFile::kAlign, 0u);
  EXPECT_EQ(file.value()->Find("none")->bytes.size(), 0u);
  EXPECT_TRUE(file.value()->Find("flag")->shape.empty());
  EXPECT_EQ(file.value()->Find("other"), nullptr);
}

// A file that was cut off: its tensors would be read past its end.
TEST_F(DenseFileTest, AFileThatIsCutOffIsRefused) {
  const std::string whole = Bytes(R"({"w": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}})", 64);
  ASSERT_TRUE(Open(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_EQ(Open(whole.substr(0, size)).status().code(), Code::kDataLoss) << size;
  }
}

// Offsets and shapes that do not suit each other or the file, among them products that overflow.
TEST_F(DenseFileTest, AHeaderThatDoesNotSuitTheFileIsRefused) {
  for (
      const char* const tensor :
      {R"({"dtype": "F32", "shape": [16], "data_offsets": [0, 60]})",
       R"({"dtype": "F32", "shape": [16], "data_offsets": [64, 128]})",
       R"({"dtype": "F32", "shape": [16], "data_offsets": [64, 0]})",
       R"({"dtype": "F32", "shape": [-16], "data_offsets": [0, 64]})",
       R"({"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]})",
       R"({"dtype": "F32", "shape": [100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 0], "data_offsets": [0, 0]})",
       R"({"dtype": "U8", "shape": [64], "data_offsets": [18446744073709551552, 18446744073709551616]})",
       R"({"dtype": "U8", "shape": [64], "data_offsets": [18446744073709551488, 18446744073709551552]})",
       R"({"dtype": "F32", "shape": [16.5], "data_offsets": [0, 64]})",
       R"({"dtype": "F32", "shape": [16], "data_offsets": [0, 1e300]})",
       R"({"dtype": "F99", "shape": [16], "data_offsets": [0, 64]})",
       R"({"dtype": "F32", "shape": 16, "data_offsets": [0, 64]})", R"({"dtype": "F32", "shape": [16]})",
       R"({"dtype": 3, "shape": [16], "data_offsets": [0, 64]})", "7", R"({"dtype": "F32")"}) {
    EXPECT_EQ(Open(Bytes(std::string("{\"w\": ") + tensor + "}", 64)).status().code(), Code::kDataLoss)
        << tensor;
  }
  EXPECT_FALSE(DenseFile::Open(path_ + "_none").ok());
}

}  // namespace
}  // namespace het::follow
