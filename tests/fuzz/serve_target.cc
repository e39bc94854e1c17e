// What a serving process maps: a file with the rows of a table. Any bytes are
// opened or refused, and whatever was opened can be read from end to end.
//
// The header's checksum, and the spec's, are made right before the file is
// opened: else nothing but them would be tried.

#include "het_tf/ext/serving/cc/serve/row_lookup.h"
#include "het_tf/ext/serving/cc/serve/serve_file.h"
#include "het_tf/ext/serving/cc/serve/serve_writer.h"
#include "tests/fuzz/target.h"
#include "tests/testing/change_head.h"

namespace het::fuzz {
namespace {

using namespace het::serve;

Bytes MakeFile(const Schema &schema, const WriteOptions &options, Key keys) {
  const std::string path = PathOf("serve_seed");
  auto writer = ServeWriter::Create(path, schema, options);
  if (!writer.ok()) Fail("no seed");
  for (Key key = 0; key < keys; ++key) {
    const std::vector<float> row(schema->dim(), static_cast<float>(key));
    if (!writer.value()->Add({&key, 1}, row.data(), row.size()).ok()) Fail("no row");
  }
  if (!writer.value()->Finish().ok()) Fail("a good file cannot be written");
  const Bytes bytes = ReadFile(path);
  unlink(path.c_str());
  return bytes;
}

void MakeChecksumsRight(Bytes *bytes) {
  testing::ChangeHead<Header>(bytes, [bytes](Header *header) {
    if (header->spec_offset > bytes->size() || header->spec_bytes > bytes->size() - header->spec_offset)
      return;
    header->spec_checksum = Checksum::Of(bytes->data() + header->spec_offset, header->spec_bytes);
  });
}

void ReadAll(const ServeFile &file) {
  std::vector<Key> ids = {0, 1, -1, INT64_MIN, INT64_MAX};
  for (Key key = 0; key < 300; ++key) ids.push_back(key);
  // A row may be as wide as a table's can be, whatever the file holds.
  const size_t some = std::max<size_t>(1, std::min<size_t>(ids.size(), (1 << 20) / file.dim()));
  std::vector<float> out(some * file.dim());
  const RowRead<ServeFile> read{&file, {ids.data(), some}, out.data()};
  static_cast<void>(LookupRows<ServeFile>({&read, 1}));
  static_cast<void>(file.Verify());
}

std::vector<Bytes> Seeds() {
  std::vector<Bytes> seeds;
  for (const Schema &schema : Schemas()) {
    for (const RowType type : {RowType::kFloat32, RowType::kFloat16, RowType::kBfloat16, RowType::kInt8}) {
      seeds.push_back(MakeFile(schema, {type, Unknown::kInitial}, 7));
    }
  }
  seeds.push_back(MakeFile(Schemas()[0], {RowType::kFloat32, Unknown::kZeros}, 0));
  seeds.push_back(MakeFile(Schemas()[0], {RowType::kFloat32, Unknown::kZeros}, 60));
  return seeds;
}

void Run(const uint8_t *data, size_t size) {
  Bytes bytes(data, data + size);
  MakeChecksumsRight(&bytes);
  static const std::string path = PathOf("serve");
  PutFile(path, bytes);
  auto opened = serve::ServeFile::Open(path);
  if (opened.ok()) ReadAll(*opened.value());
  unlink(path.c_str());
}

const bool registered = Register({"serve", Run, Seeds});

}  // namespace
}  // namespace het::fuzz
