// Mapped files: refused paths, checks of the head, and spans inside the file.
#include "het_tf/core/base/mapped_file.h"

#include <sys/stat.h>

#include <cstring>
#include <optional>

#include "het_tf/core/base/checksum.h"
#include "tests/testing/status.h"
#include "tests/testing/temp_folder.h"

namespace het {
namespace {

constexpr MappedFile::Kind kPlums = {
    "plum", "grow one", "pick another", "wait for spring", Code::kDataLoss, Code::kFailedPrecondition};
constexpr char kMagic[8] = {'P', 'L', 'U', 'M', 'P', 'L', 'U', 'M'};

struct Head {
  char magic[8];
  uint32_t version, head_bytes;
  uint64_t file_bytes, stones, checksum;
};

class MappedFileTest : public het::testing::FolderTest {
 protected:
  // Writes a head, and bytes 0, 1, 2 ... up to `size`.
  std::string Put(size_t size, uint32_t version = 1) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i);
    Head head = {{}, version, sizeof head, size, 7, 0};
    std::memcpy(head.magic, kMagic, sizeof kMagic);
    head.checksum = Checksum::Of(&head, offsetof(Head, checksum));
    std::memcpy(bytes.data(), &head, sizeof head);
    std::ofstream(path_, std::ios::binary) << bytes;
    return bytes;
  }

  const std::string path_ = Path("plum");
};

TEST_F(MappedFileTest, SpansLieInsideOfTheFile) {
  Put(256);
  std::optional<MappedFile> file(ValueOf(MappedFile::Open(path_, kPlums)));
  const auto at = ValueOf(file->At<uint16_t>(254, 1));
  EXPECT_EQ(at[0], 0xfffe);
  EXPECT_TRUE(file->At<uint64_t>(256, 0).ok());
  struct {
    uint64_t offset, count;
  } const outside[] = {{250, 4},        {252, 3},
                       {253, 1},        {256, 1},
                       {258, 0},        {UINT64_MAX - 1, 1},
                       {0, UINT64_MAX}, {2, UINT64_MAX / 2 + 1}};
  for (const auto& part : outside) {
    const Status status = file->At<uint16_t>(part.offset, part.count).status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << part.offset << " " << part.count;
    EXPECT_EQ(status.message(),
              "the plum " + path_ + " is damaged: its header names parts that are not in it; pick another");
  }

  Head head;
  ASSERT_TRUE(file->ReadHead(kMagic, 1, &head).ok());
  EXPECT_EQ(head.stones, 7u);
  const auto section = ValueOf(file->Section<uint64_t>(64, 24));
  EXPECT_TRUE(file->Section<uint8_t>(256, 0).ok());
  for (uint64_t offset : {0, 8, 72, 320}) EXPECT_FALSE(file->Section<uint8_t>(offset, 0).ok()) << offset;
  EXPECT_FALSE(file->Section<uint64_t>(64, 25).ok());
  const MappedFile moved = std::move(*file);
  file.reset();
  EXPECT_EQ(section[23], 0xfffefdfcfbfaf9f8u);  // spans outlive a move
  EXPECT_EQ(moved.path(), path_);
}

TEST_F(MappedFileTest, WrongHeadsAreRefused) {
  const std::string good = Put(256);
  const auto refusal = [&](const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    auto file = MappedFile::Open(path_, kPlums);
    Head head;
    return file.ok() ? file.value().ReadHead(kMagic, 1, &head) : file.status();
  };
  EXPECT_TRUE(refusal(good).ok());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(refusal(good.substr(0, size)).code(), Code::kDataLoss) << size;
  }
  EXPECT_NE(refusal(good + "x").message().find("has 257 bytes and should have 256"), std::string::npos);
  for (size_t bit = 0; bit < 8 * sizeof(Head); ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(refusal(bytes).ok()) << bit;
  }
  Put(256, 2);
  Head head;
  EXPECT_TRUE(Fails(MappedFile::Open(path_, kPlums).value().ReadHead(kMagic, 1, &head),
                    Code::kFailedPrecondition,
                    "version 2, and this het_tf reads version 1; wait for spring"));
}

TEST_F(MappedFileTest, NonRegularFilesAreRefusedAtOnce) {
  const Status none = MappedFile::Open(path_, kPlums).status();
  EXPECT_EQ(none.code(), Code::kNotFound);
  EXPECT_EQ(none.message(), "cannot open the plum " + path_ + ": No such file or directory; grow one");
  EXPECT_EQ(MappedFile::Find(path_, kPlums).status().message(), none.message());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  for (const std::string& path : {path_, folder_.path()}) {
    const Status status = MappedFile::Open(path, kPlums).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(), path + " is not a regular file; give a plum");
  }
}

}  // namespace
}  // namespace het
