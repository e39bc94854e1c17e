// Row files: reads equal what was written, and any damage is reported.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "het_tf/core/base/checksum.h"
#include "het_tf/ext/checkpoint/cc/row_reader.h"
#include "het_tf/ext/checkpoint/cc/row_writer.h"
#include "tests/testing/golden.h"
#include "tests/testing/status.h"
#include "tests/testing/temp_folder.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

TEST(Checksum, IsXxh3OfAllPieces) {
  EXPECT_EQ(Checksum::Of("", 0), 0x2d06800538d394c2u);  // xxHash's own test vector
  EXPECT_EQ(Checksum().value(), 0x2d06800538d394c2u);
  EXPECT_EQ(Checksum::Text(0x0a9136aa), "000000000a9136aa");
  const std::string bytes(100000, 'x');
  Checksum pieces;
  pieces.Add(bytes.data(), 257);
  pieces.Add(bytes.data() + 257, bytes.size() - 257);
  EXPECT_EQ(pieces.value(), Checksum::Of(bytes.data(), bytes.size()));
}

RowTable Plan(const std::string& name, uint32_t dim, uint32_t slot_floats, uint64_t rows,
              bool increment = false, uint64_t removed = 0) {
  RowTable table;
  table.name = name;
  table.dim = dim;
  table.slot_floats = slot_floats;
  table.rows = rows;
  table.increment = increment;
  table.removed = removed;
  return table;
}

// Row i of a table, equal at every call.
void FillRow(uint64_t i, RowBatch* batch) {
  std::vector<float> row(batch->dim() + batch->slot_floats());
  for (size_t d = 0; d < row.size(); ++d) row[d] = static_cast<float>(i * 100 + d);
  const RowMeta meta{static_cast<Key>(Mix64(i)), static_cast<Clock>(i * i), static_cast<uint32_t>(i + 7),
                     static_cast<uint16_t>(i), 1};
  batch->Add(meta, row.data());
}

class RowFileTest : public FolderTest {
 protected:
  // Writes `written` of the planned rows, in batches of `some`.
  RowFileSummary Write(std::vector<RowTable> plans, const std::vector<uint64_t>& written, size_t some = 5) {
    unlink(path().c_str());
    auto writer = ValueOf(RowWriter::Create(path(), plans));
    for (size_t t = 0; t < plans.size(); ++t) {
      RowBatch batch(plans[t].dim, plans[t].slot_floats, some);
      for (uint64_t i = 0; i < written[t]; ++i) {
        FillRow(i, &batch);
        if (batch.left() > 0 && i + 1 < written[t]) continue;
        EXPECT_TRUE(writer->Append(t, batch).ok());
        batch.Clear();
      }
      for (Key key = 0; plans[t].increment && key < 3; ++key) {
        EXPECT_TRUE(writer->AppendRemoved(t, Span<const Key>(&key, 1)).ok());
      }
    }
    return ValueOf(writer->Finish());
  }
  void ExpectRows(const RowReader& reader, const std::string& name, uint64_t rows) {
    const auto table = ValueOf(reader.Find(name));
    ASSERT_EQ(table->rows, rows);
    RowBatch wanted(table->dim, table->slot_floats, rows + 1);
    RowBatch got(table->dim, table->slot_floats, rows + 1);
    for (uint64_t i = 0; i < rows; ++i) FillRow(i, &wanted);
    ASSERT_TRUE(reader.ReadRows(*table, 0, true, &got).ok());
    ASSERT_EQ(got.size(), rows);
    EXPECT_TRUE(std::equal(wanted.keys(), wanted.keys() + rows, got.keys()));
    EXPECT_TRUE(std::equal(wanted.clocks(), wanted.clocks() + rows, got.clocks()));
    EXPECT_TRUE(std::equal(wanted.values(), wanted.values() + rows * wanted.dim(), got.values()));
    EXPECT_TRUE(std::equal(wanted.slots(), wanted.slots() + rows * wanted.slot_floats(), got.slots()));
    EXPECT_TRUE(std::equal(wanted.last_used(), wanted.last_used() + rows, got.last_used()));
    EXPECT_TRUE(std::equal(wanted.counts(), wanted.counts() + rows, got.counts()));
  }
  // The error of the file's current structure.
  Status Check() { return RowReader::Open(path()).status(); }
  std::string Bytes() { return ReadFile(path()); }
  // Writes in place: truncating a file and writing it again is slow, since it goes to the disk at once.
  void SetBytes(const std::string& bytes) {
    std::fstream(path(), std::ios::binary | std::ios::in | std::ios::out)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    std::filesystem::resize_file(path(), bytes.size());
  }
  std::string path() const { return Path("rows"); }
};

const char* const kStrange = "a \"quoted\"/näme\n\\keys/keys";

TEST_F(RowFileTest, ThereAndBack) {
  const auto summary =
      Write({Plan("a", 7, 3, 23), Plan(kStrange, 1, 0, 4, true, 3), Plan("none", 16, 1, 0)}, {23, 4, 0});
  const auto reader = ValueOf(RowReader::Open(path()));
  EXPECT_EQ(reader->bytes(), summary.bytes);
  ExpectRows(*reader, "a", 23);
  ExpectRows(*reader, kStrange, 4);
  ExpectRows(*reader, "none", 0);
  const RowTable& strange = *reader->Find(kStrange).value();
  EXPECT_TRUE(strange.increment);
  Key removed[3];
  ASSERT_TRUE(reader->Read(strange, kRemovedColumn, 0, 3, removed).ok());
  EXPECT_THAT(removed, ::testing::ElementsAre(0, 1, 2));
  EXPECT_FALSE(reader->Find("a").value()->increment);
  EXPECT_THAT(reader->Find("b").status().message(), HasSubstr("no table 'b' in"));
  for (const RowTable& table : reader->tables()) {
    for (size_t c = 0; c < kRowColumns; ++c) {
      const RowTensor& tensor = table.tensors[c];
      const uint64_t item = c == kKeysColumn || c == kClocksColumn || c == kRemovedColumn ? 8
                            : c == kCountsColumn                                          ? 2
                                                                                          : 4;
      EXPECT_TRUE(!tensor.present || tensor.begin % item == 0) << table.TensorName(static_cast<RowColumn>(c));
    }
  }
}

TEST_F(RowFileTest, Golden) {
  Write({Plan("a", 2, 2, 2), Plan("b", 1, 0, 2, true, 3)}, {2, 2});
  const std::string version = R"("version":")";
  Golden("rows", Bytes(), Bytes().find(version) + version.size(), "kVersion (checkpoint/row_file.cc)");
  const auto reader = ValueOf(RowReader::Open(GoldenPath("rows")));
  ExpectRows(*reader, "a", 2);
  ExpectRows(*reader, "b", 2);
  Key removed[3];
  ASSERT_TRUE(reader->Read(*reader->Find("b").value(), kRemovedColumn, 0, 3, removed).ok());
  EXPECT_THAT(removed, ::testing::ElementsAre(0, 1, 2));
}

// With fewer rows than planned the file is as if their number had been known.
TEST_F(RowFileTest, FewerRowsThanPlanned) {
  Write({Plan("a", 7, 3, 200000), Plan("b", 1, 0, 1000, true, 1000), Plan("c", 2, 2, 9)}, {19, 3, 9}, 4);
  EXPECT_LT(Bytes().size(), 4096u);
  const auto reader = ValueOf(RowReader::Open(path()));
  ExpectRows(*reader, "a", 19);
  ExpectRows(*reader, "b", 3);
  ExpectRows(*reader, "c", 9);
  EXPECT_EQ(reader->Find("b").value()->removed, 3u);
}

TEST_F(RowFileTest, TruncatedAndExtendedFilesAreReported) {
  Write({Plan("a", 2, 1, 5), Plan("b", 1, 0, 3, true, 3)}, {5, 3});
  const std::string bytes = Bytes();
  ASSERT_TRUE(Check().ok()) << Check().message();
  for (size_t size = 0; size < bytes.size(); ++size) {
    SetBytes(bytes.substr(0, size));
    ASSERT_TRUE(Fails(Check(), Code::kInvalidArgument, path())) << size;
  }
  SetBytes(bytes + "x");
  EXPECT_EQ(Check().code(), Code::kInvalidArgument);
}

TEST_F(RowFileTest, ForgedHeadersAreRefused) {
  Write({Plan("a", 2, 1, 5)}, {5});
  const std::string bytes = Bytes();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string other = bytes;
    const size_t at = other.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    other.replace(at, from.size(), to);
    uint64_t length;
    std::memcpy(&length, other.data(), sizeof(length));
    length += to.size() - from.size();
    std::memcpy(other.data(), &length, sizeof(length));
    SetBytes(other);
    return Check().message();
  };
  EXPECT_THAT(with("\"version\":\"1\"", "\"version\":\"2\""),
              HasSubstr("version \"2\"; this het_tf reads version 1"));
  EXPECT_THAT(with("het_tf rows", "het_tf cows"), HasSubstr("__metadata__"));
  EXPECT_THAT(with("\"I64\"", "\"U64\""), HasSubstr("has dtype \"U64\", not I64"));
  EXPECT_THAT(with("[5,2]", "[5,3]"), HasSubstr("has the shape [5,3], but 40 bytes"));
  EXPECT_THAT(with("[5,2]", "[4611686018427387904,8]"), HasSubstr("but 40 bytes"));
  EXPECT_THAT(with("[5,2]", "[5,0]"), HasSubstr("has the shape [5,0]"));
  EXPECT_THAT(with("[5,2]", "[5.5,2]"), HasSubstr("has the shape"));
  EXPECT_THAT(with("[0,40]", "[8,48]"), HasSubstr("begins at byte"));
  EXPECT_THAT(with("[0,40]", "[40,0]"), HasSubstr("has the offsets [40,0]"));
  EXPECT_THAT(with("[0,40]", "[0,18446744073709551615]"), HasSubstr("has the offsets"));
  EXPECT_THAT(with("[0,40]", "[-1,39]"), HasSubstr("has the offsets"));
  EXPECT_THAT(with("a/clocks", "a/keys"), HasSubstr("a name twice"));
  EXPECT_THAT(with("a/clocks", "a/clicks"), HasSubstr("'a/clicks' is not a column"));
  EXPECT_THAT(with("a/clocks", "b/clocks"), HasSubstr("there is no tensor 'a/clocks'"));
  EXPECT_THAT(with("{\"__metadata__\"", "[\"__metadata__\""), HasSubstr("not the JSON object"));
  SetBytes(std::string(8, '\xff') + bytes.substr(8));
  EXPECT_THAT(Check().message(), HasSubstr("the length of its header is 18446744073709551615 bytes"));
}

TEST_F(RowFileTest, FifoIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT(RowReader::Open(path()).status().message(), HasSubstr(path() + "' is not a regular file"));
}

TEST_F(RowFileTest, UnfinishedFileIsDeleted) {
  { EXPECT_TRUE(RowWriter::Create(path(), {Plan("a", 2, 1, 5)}).ok()); }
  EXPECT_EQ(RowReader::Open(path()).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace het::testing
