// A base of serving files, and live files of it, in a folder of their own.
#pragma once

#include <memory>

#include "het_tf/ext/serving/cc/follow/boot_clock.h"
#include "het_tf/ext/serving/cc/follow/live_reader.h"
#include "het_tf/ext/serving/cc/follow/live_writer.h"
#include "het_tf/ext/serving/cc/serve/serve_writer.h"
#include "tests/testing/keys.h"
#include "tests/testing/status.h"
#include "tests/testing/table_specs.h"
#include "tests/testing/temp_folder.h"

namespace het::follow {

class LiveFilesTest : public testing::FolderTest {
 protected:
  std::string Live() const { return Path("het_live"); }

  static Schema MakeSchema(const std::string& name, uint32_t dim, Stored stored = Stored::kFloat32) {
    TableSpec spec = het::testing::NewSpec(name, dim, "sgd", {"normal", 0, 0.1});
    spec.seed = 7;
    spec.stored = stored;
    return TableSchema::Create(spec).value();
  }
  // Rows of keys 0, 1, ..., each full of `value`.
  void WriteBase(const std::string& name, uint32_t dim, size_t rows, float value,
                 serve::RowType type = serve::RowType::kFloat32, Stored stored = Stored::kFloat32) {
    const Schema schema = MakeSchema(name, dim, stored);
    serve::WriteOptions options;
    options.row_type = type;
    std::filesystem::remove(Path(name + ".het"));
    auto writer = ValueOf(serve::ServeWriter::Create(Path(name + ".het"), schema, options));
    const std::vector<float> row(dim, value);
    for (size_t i = 0; i < rows; ++i) {
      const Key key = static_cast<Key>(i);
      ASSERT_TRUE(writer->Add({&key, 1}, row.data(), dim).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
  }
  std::unique_ptr<LiveWriter> OpenWriter(const std::vector<std::string>& names) const {
    return ValueOf(LiveWriter::Open(Live(), Files(names)));
  }
  std::unique_ptr<LiveReader> OpenReader(const std::vector<std::string>& names) const {
    return ValueOf(LiveReader::Open(Live(), Files(names)));
  }
  std::vector<std::string> Files(const std::vector<std::string>& names) const {
    std::vector<std::string> files;
    for (const std::string& name : names) files.push_back(Path(name + ".het"));
    return files;
  }

  static std::vector<Key> KeysTo(Key count) { return testing::Range(0, static_cast<size_t>(count)); }
  // The row of a key, full of `value`.
  static Status Put(LiveWriter* writer, size_t table, Key key, float value) {
    const std::vector<float> row(writer->schema(table).dim(), value);
    return writer->Put(table, {&key, 1}, row.data());
  }
  static std::vector<float> Read(LiveReader* reader, size_t table, const std::vector<Key>& keys,
                                 uint64_t* seen = nullptr) {
    std::vector<float> out(keys.size() * reader->base(table).dim());
    const LiveRead read{table, keys, out.data()};
    uint64_t ignored = 0;
    EXPECT_TRUE(Ok(reader->Lookup({&read, 1}, seen != nullptr ? seen : &ignored)));
    return out;
  }
  static std::vector<float> Initial(const Schema& schema, Key key) {
    std::vector<float> row(schema->dim());
    schema->InitValue(key, row.data());
    return row;
  }
};

}  // namespace het::follow
