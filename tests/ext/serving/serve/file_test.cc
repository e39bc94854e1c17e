// Serving files: reads equal what was written, and invalid files are refused.

#include <cmath>
#include <limits>
#include <map>

#include "het_tf/ext/serving/cc/serve/row_codec.h"
#include "het_tf/ext/serving/cc/serve/row_lookup.h"
#include "het_tf/ext/serving/cc/serve/serve_file.h"
#include "het_tf/ext/serving/cc/serve/serve_writer.h"
#include "tests/testing/change_head.h"
#include "tests/testing/golden.h"
#include "tests/testing/keys.h"
#include "tests/testing/random.h"
#include "tests/testing/status.h"
#include "tests/testing/table_specs.h"
#include "tests/testing/temp_folder.h"

namespace het::serve {
namespace {

namespace fs = std::filesystem;
using het::testing::PutFile;
using het::testing::Random;
using het::testing::ReadFile;
using het::testing::Scaled;

Schema MakeSchema(uint32_t dim, const std::string& name = "item", uint64_t seed = 7) {
  TableSpec spec = het::testing::NewSpec(name, dim, "adam", {"normal", 0, 0.1});
  spec.seed = seed;
  return TableSchema::Create(spec).value();
}

class ServeFileTest : public het::testing::FolderTest {
 protected:
  void Write(const std::string& path, const Schema& schema, const std::vector<Key>& keys,
             const std::vector<float>& rows, const WriteOptions& options = {}) {
    auto writer = ValueOf(ServeWriter::Create(path, schema, options));
    ASSERT_TRUE(writer->Add(keys, rows.data(), schema->dim()).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
  std::shared_ptr<const ServeFile> Open(const std::string& path) { return ValueOf(ServeFile::Open(path)); }
  std::vector<float> Read(const ServeFile& file, const std::vector<Key>& ids) {
    std::vector<float> out(ids.size() * file.dim(), std::nanf(""));
    const RowRead<ServeFile> read{&file, ids, out.data()};
    EXPECT_TRUE(LookupRows<ServeFile>({&read, 1}).ok());
    return out;
  }
};

TEST_F(ServeFileTest, AgainstAMap) {
  for (uint64_t seed = 1; seed <= Scaled(20); ++seed) {
    Random r(seed);
    const auto dim = static_cast<uint32_t>(r.Pick<uint64_t>({1, 3, 16, 33, 200}));
    const size_t count = r.Pick<uint64_t>({0, 1, 7, 1000, 20000});
    const Schema schema = MakeSchema(dim, "t" + std::to_string(seed), seed);
    const std::string path = Path("rows" + std::to_string(seed));
    std::map<Key, std::vector<float>> truth;
    WriteOptions options;
    options.unknown = r.Chance(0.5) ? Unknown::kInitial : Unknown::kZeros;
    auto writer = ValueOf(ServeWriter::Create(path, schema, options));
    const auto draw = [&] {
      return r.Chance(0.02)  ? std::numeric_limits<Key>::min()
             : r.Chance(0.5) ? r.Between(-500, 500)
                             : static_cast<Key>(r.Next());
    };
    for (size_t done = 0; done < count;) {  // the last of equal keys counts, for any pieces
      const size_t some = std::min<size_t>(count - done, 1 + r.Below(3000));
      const size_t stride = dim + r.Below(3);
      std::vector<Key> keys(some);
      std::vector<float> rows(some * stride);
      for (size_t i = 0; i < some; ++i) {
        keys[i] = draw();
        for (size_t d = 0; d < dim; ++d) rows[i * stride + d] = static_cast<float>(r.Between(-1000, 1000));
        truth[keys[i]].assign(rows.begin() + static_cast<ptrdiff_t>(i * stride),
                              rows.begin() + static_cast<ptrdiff_t>(i * stride + dim));
      }
      ASSERT_TRUE(writer->Add({keys.data(), some}, rows.data(), stride).ok());
      done += some;
    }
    ASSERT_TRUE(writer->Finish().ok());
    const auto file = Open(path);
    EXPECT_TRUE(file->Verify().ok());
    EXPECT_EQ(file->schema().ToJson(), schema->ToJson());
    EXPECT_EQ(file->bytes(), fs::file_size(path));

    std::vector<Key> ids;
    for (const auto& [key, row] : truth) ids.push_back(key);
    for (int i = 0; i < 500; ++i) ids.push_back(draw());
    for (size_t i = 1; i < ids.size(); ++i) std::swap(ids[i], ids[r.Below(i + 1)]);
    const std::vector<float> out = Read(*file, ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      std::vector<float> want(dim);
      const auto row = truth.find(ids[i]);
      if (row != truth.end()) {
        want = row->second;
      } else if (options.unknown == Unknown::kInitial) {
        schema->InitValue(ids[i], want.data());
      }
      ASSERT_EQ(std::memcmp(want.data(), out.data() + i * dim, dim * sizeof(float)), 0) << ids[i];
    }
  }
}

TEST_F(ServeFileTest, Golden) {
  const Schema schema = MakeSchema(2);
  const std::vector<float> rows = {127, -3, 127, 64, 5, -127};  // integers stay as they are
  Write(Path("rows"), schema, {-1, 1000002, 3}, rows, {RowType::kInt8, Unknown::kZeros});
  het::testing::Golden("serve", ReadFile(Path("rows")), 8, "kVersion (serve/serve_format.h)");
  const auto file = Open(het::testing::GoldenPath("serve"));
  EXPECT_TRUE(file->Verify().ok());
  EXPECT_EQ(file->schema().ToJson(), schema->ToJson());
  EXPECT_EQ(Read(*file, {3, -1, 4, 1000002}), std::vector<float>({5, -127, 127, -3, 0, 0, 127, 64}));
}

TEST_F(ServeFileTest, OneLookupReadsManyFiles) {
  std::vector<std::shared_ptr<const ServeFile>> files;
  std::vector<RowRead<ServeFile>> reads;
  std::vector<std::vector<float>> outs;
  std::vector<Key> ids = {3, 1, 4, 1, 5, 9, 2, 6};
  for (uint32_t t = 0; t < 30; ++t) {
    const Schema schema = MakeSchema(t + 1, "t" + std::to_string(t));
    std::vector<Key> keys = {1, 2, 3, 4, 5, 6, 9};
    std::vector<float> rows(keys.size() * schema->dim());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(1000 * t + keys[i / schema->dim()]);
    Write(Path(schema->spec().name), schema, keys, rows);
    files.push_back(Open(Path(schema->spec().name)));
    outs.emplace_back(ids.size() * schema->dim());
  }
  for (uint32_t t = 0; t < 30; ++t) reads.push_back({files[t].get(), ids, outs[t].data()});
  ASSERT_TRUE(LookupRows<ServeFile>(reads).ok());
  for (uint32_t t = 0; t < 30; ++t) {
    for (size_t i = 0; i < outs[t].size(); ++i) {
      ASSERT_EQ(outs[t][i], static_cast<float>(1000 * t + ids[i / (t + 1)])) << t;
    }
  }
  ASSERT_TRUE(LookupRows<ServeFile>({reads.data(), size_t{0}}).ok());
}

TEST_F(ServeFileTest, SmallerRows) {
  Random r(5);
  for (const RowType type : {RowType::kFloat16, RowType::kBfloat16, RowType::kInt8}) {
    for (const uint32_t dim : {1u, 2u, 7u, 16u, 19u}) {
      const Schema schema = MakeSchema(dim);
      const std::vector<Key> keys = het::testing::Range(0, 300);
      std::vector<float> rows(keys.size() * dim);
      for (float& value : rows) value = static_cast<float>((r.Unit() - 0.5) * std::exp2(r.Between(-10, 10)));
      for (uint32_t d = 0; d < dim; ++d) rows[d] = 0;  // a row of zeros
      WriteOptions options;
      options.row_type = type;
      const std::string path = Path(std::string(RowTypeName(type)) + std::to_string(dim));
      Write(path, schema, keys, rows, options);
      const auto file = Open(path);
      const std::vector<float> out = Read(*file, keys);
      for (size_t i = 0; i < keys.size(); ++i) {
        float most = 0;
        for (uint32_t d = 0; d < dim; ++d) most = std::max(most, std::fabs(rows[i * dim + d]));
        for (uint32_t d = 0; d < dim; ++d) {
          const float value = rows[i * dim + d];
          float allowed = most / 127 / 2 * 1.0001f;
          if (type == RowType::kFloat16) allowed = std::max(std::fabs(value) / 2048, 0x1p-25f);
          if (type == RowType::kBfloat16) allowed = std::fabs(value) / 256;
          ASSERT_LE(std::fabs(out[i * dim + d] - value), allowed) << RowTypeName(type) << " " << value;
        }
      }
    }
  }
}

// Known bit patterns; and every float16 survives a round trip.
TEST(RowCodec, Float16) {
  const std::vector<std::pair<float, uint16_t>> known = {
      {0.0f, 0x0000},       {-0.0f, 0x8000},        {1.0f, 0x3c00},     {-2.0f, 0xc000},
      {65504.0f, 0x7bff},   {0x1p-24f, 1},          {0x1.8p-24f, 2},    {0x1p-25f, 0},
      {0x1.000002p-25f, 1}, {0x1p-14f, 0x0400},     {1.0f / 3, 0x3555}, {0x1.002p0f, 0x3c00},
      {0x1.006p0f, 0x3c02}, {0x1.ff8p-15f, 0x03ff}, {INFINITY, 0x7c00}, {-INFINITY, 0xfc00}};
  for (const auto& [value, half] : known) {
    uint16_t row[2];
    EncodeRow(RowType::kFloat16, &value, 1, reinterpret_cast<uint8_t*>(row));
    EXPECT_EQ(row[0], half) << value;
  }
  for (uint32_t bits = 0; bits < 0x10000; bits += 8) {
    // Reading eight at once and one at a time take different code.
    uint16_t halves[8], again[8], single[2] = {};
    for (uint32_t i = 0; i < 8; ++i) halves[i] = static_cast<uint16_t>(bits + i);
    float values[8], one;
    DecodeRow(RowType::kFloat16, reinterpret_cast<const uint8_t*>(halves), 8, values);
    EncodeRow(RowType::kFloat16, values, 8, reinterpret_cast<uint8_t*>(again));
    for (uint32_t i = 0; i < 8; ++i) {
      single[0] = halves[i];
      DecodeRow(RowType::kFloat16, reinterpret_cast<const uint8_t*>(single), 1, &one);
      if (std::isnan(values[i])) {
        EXPECT_TRUE(std::isnan(one) && (again[i] & 0x7c00) == 0x7c00 && (again[i] & 0x3ff) != 0);
        continue;
      }
      EXPECT_EQ(one, values[i]);
      EXPECT_EQ(again[i], halves[i]);
    }
  }
  const float large[] = {1, 65520};
  EXPECT_FALSE(Fits(RowType::kFloat16, large, 2));
  EXPECT_TRUE(Fits(RowType::kBfloat16, large, 2));
  EXPECT_TRUE(Fits(RowType::kFloat16, large, 1));
}

TEST_F(ServeFileTest, ValuesBeyondFloat16AreRefused) {
  WriteOptions options;
  options.row_type = RowType::kFloat16;
  auto writer = ValueOf(ServeWriter::Create(Path("rows"), MakeSchema(2), options));
  const Key key = 77;
  const float row[] = {1, -1e6};
  EXPECT_TRUE(Fails(writer->Add({&key, 1}, row, 2), Code::kInvalidArgument, "77"));
  writer.reset();
  EXPECT_FALSE(fs::exists(Path("rows")));
}

TEST_F(ServeFileTest, UnfinishedWriterLeavesNoFile) {
  const std::string path = Path("rows");
  {
    auto writer = ServeWriter::Create(path, MakeSchema(2), {});
    ASSERT_TRUE(writer.ok());
    EXPECT_FALSE(ServeFile::Open(path).ok());
  }
  EXPECT_FALSE(fs::exists(path));
  PutFile(path, "mine");
  EXPECT_EQ(ServeWriter::Create(path, MakeSchema(2), {}).status().code(), Code::kFile);
  EXPECT_EQ(ReadFile(path), "mine");
}

TEST_F(ServeFileTest, FileIsMappedOnceAndClosedByItsLastUser) {
  const std::string path = Path("rows");
  Write(path, MakeSchema(1), {1}, {10});
  auto first = Open(path);
  auto second = Open(path);
  EXPECT_EQ(first, second);
  // Another file under the same name is opened; readers of the old one keep it.
  Write(Path("next"), MakeSchema(1), {1}, {20});
  fs::rename(Path("next"), path);
  auto third = Open(path);
  EXPECT_NE(first, third);
  EXPECT_EQ(Read(*first, {1})[0], 10);
  EXPECT_EQ(Read(*third, {1})[0], 20);
  const std::weak_ptr<const ServeFile> open = first;
  first.reset();
  EXPECT_FALSE(open.expired());
  second.reset();
  EXPECT_TRUE(open.expired());
}

// --- invalid files

// Open or Verify finds a flipped bit, or it lies in the zeros between two sections.
TEST_F(ServeFileTest, EveryFlippedBitIsFound) {
  const std::string path = Path("rows");
  Write(path, MakeSchema(3), {1, 2, 3}, {1, 1, 1, 2, 2, 2, 3, 3, 3});
  const std::string bytes = ReadFile(path);
  const Header header = Open(path)->header();
  const auto counts = [&](size_t at) {
    return at < header.spec_offset + header.spec_bytes ||
           (at >= header.rows_offset && at < header.rows_offset + header.rows * header.row_bytes) ||
           at >= header.buckets_offset;
  };
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    PutFile(Path("bad"), damaged);
    auto file = ServeFile::Open(Path("bad"));
    const bool found = !file.ok() || !file.value()->Verify().ok();
    ASSERT_EQ(found, counts(at)) << at;
    fs::remove(Path("bad"));
  }
}

// The header's checksum catches accidents; a forged header with a valid checksum meets the other checks.
TEST_F(ServeFileTest, ForgedHeaderIsRefused) {
  const std::string path = Path("rows");
  Write(path, MakeSchema(3), {1, 2, 3}, {1, 1, 1, 2, 2, 2, 3, 3, 3});
  const std::string bytes = ReadFile(path);
  const auto code_of = [&](const std::function<void(Header*)>& change) {
    std::string changed = bytes;
    het::testing::ChangeHead<Header>(&changed, change);
    PutFile(Path("lie"), changed);
    return ServeFile::Open(Path("lie")).status().code();
  };
  EXPECT_EQ(code_of([](Header*) {}), Code::kOk);
  EXPECT_EQ(code_of([](Header* h) { ++h->version; }), Code::kFailedPrecondition);
  for (const auto& change : std::vector<std::function<void(Header*)>>{
           [](Header* h) { h->magic[0] = 'h'; },
           [](Header* h) { h->rows = kMaxRows; },
           [](Header* h) { h->rows = UINT64_MAX; },
           [](Header* h) { h->rows += 40; },
           [](Header* h) { h->buckets = 0; },
           [](Header* h) { ++h->buckets; },
           [](Header* h) { h->buckets = UINT64_MAX / 64 + 2; },
           [](Header* h) { h->dim = 0; },
           [](Header* h) { ++h->dim; },
           [](Header* h) { h->dim = 1u << 31; },
           [](Header* h) { h->row_bytes = 4; },
           [](Header* h) { h->row_type = static_cast<RowType>(4); },
           [](Header* h) { h->unknown = static_cast<Unknown>(2); },
           [](Header* h) { h->probes = 0; },
           [](Header* h) { h->probes = kMaxProbes + 1; },
           [](Header* h) { h->rows_offset = UINT64_MAX - 63; },
           [](Header* h) { h->rows_offset = 0; },
           [](Header* h) { h->rows_offset += 4; },
           [](Header* h) { h->buckets_offset += 64; },
           [](Header* h) { h->spec_offset += 64; },
           [](Header* h) { h->spec_bytes = UINT64_MAX; },
           [](Header* h) { h->spec_bytes -= 1; },
           [](Header* h) { h->file_bytes += 64; },
       }) {
    EXPECT_EQ(code_of(change), Code::kDataLoss);
  }
}

TEST_F(ServeFileTest, CorruptIndexFailsTheLookup) {
  const std::string path = Path("rows");
  Write(path, MakeSchema(3), {1, 2, 3}, {1, 1, 1, 2, 2, 2, 3, 3, 3});
  std::string bytes = ReadFile(path);
  const Header header = Open(path)->header();
  for (uint64_t b = 0; b < header.buckets; ++b) {
    Bucket bucket;
    char* at = bytes.data() + header.buckets_offset + b * sizeof bucket;
    std::memcpy(&bucket, at, sizeof bucket);
    for (uint32_t i = 0; i < bucket.count; ++i) bucket.row[i] = 3;
    bucket.count = 255;  // more keys than the bucket has
    bucket.more = 255;
    std::memcpy(at, &bucket, sizeof bucket);
  }
  PutFile(Path("lie"), bytes);
  const auto file = Open(Path("lie"));
  const Key known = 2, unknown = 99;
  float out[3];
  const RowRead<ServeFile> bad{file.get(), {&known, 1}, out}, fine{file.get(), {&unknown, 1}, out};
  EXPECT_EQ(LookupRows<ServeFile>({&bad, 1}).code(), Code::kDataLoss);
  EXPECT_TRUE(LookupRows<ServeFile>({&fine, 1}).ok());
  const Key no_key = 3 * (Key{1} << 32) + 3;  // as the row numbers behind the keys read
  const RowRead<ServeFile> none{file.get(), {&no_key, 1}, out};
  EXPECT_TRUE(LookupRows<ServeFile>({&none, 1}).ok());
  EXPECT_EQ(file->Verify().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace het::serve
