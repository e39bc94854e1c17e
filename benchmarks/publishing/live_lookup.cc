// What does it cost a lookup that its rows may change? The same ids from a serving file and from live files,
// in turns: nanoseconds per id, and the median ratio of the turns.
//
//   live_lookup [--rows N] [--dim D] [--batch B] [--turns T] [--writing]
//
// --writing: a thread puts rows meanwhile, as a follower does.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "het_tf/ext/serving/cc/follow/live_reader.h"
#include "het_tf/ext/serving/cc/follow/live_writer.h"
#include "het_tf/ext/serving/cc/serve/row_lookup.h"
#include "het_tf/ext/serving/cc/serve/serve_file.h"
#include "het_tf/ext/serving/cc/serve/serve_writer.h"

namespace {

using het::Key;
using het::Span;

template <typename T>
T Checked(het::Result<T> result) {
  if (result.ok()) return std::move(result.value());
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}
void Check(const het::Status& status) {
  if (!status.ok()) Checked(het::Result<int>(status));
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Options {
  size_t rows = 1000000, dim = 16, batch = 4096, turns = 51;
  bool writing = false;
};

void WriteBase(const std::string& path, const Options& options) {
  het::TableSpec spec;
  spec.name = "item";
  spec.dim = static_cast<uint32_t>(options.dim);
  spec.optimizer.name = "sgd";
  const het::Schema schema = Checked(het::TableSchema::Create(spec));
  auto writer = Checked(het::serve::ServeWriter::Create(path, schema, {}));
  std::vector<float> row(options.dim);
  for (size_t i = 0; i < options.rows; ++i) {
    const Key key = static_cast<Key>(i);
    std::fill(row.begin(), row.end(), static_cast<float>(i));
    Check(writer->Add({&key, 1}, row.data(), options.dim));
  }
  Check(writer->Finish());
}

int Run(const Options& options, const std::string& folder) {
  const std::string base = folder + "/item.het";
  WriteBase(base, options);
  auto file = Checked(het::serve::ServeFile::Open(base));
  auto writer = Checked(het::follow::LiveWriter::Open(folder + "/het_live", {base}));
  auto reader = Checked(het::follow::LiveReader::Open(folder + "/het_live", {base}));

  std::mt19937_64 random(1);
  const size_t batches = std::max<size_t>(1, 200000 / options.batch);
  std::vector<Key> ids(options.batch * batches);
  for (Key& id : ids) id = static_cast<Key>(random() % options.rows);
  std::vector<float> out(options.batch * options.dim);
  // As many changes as rows: a new file has its rows in the order of the index, which is faster to read.
  for (size_t i = 0; i < options.rows; ++i) {
    const Key key = static_cast<Key>(random() % options.rows);
    Check(writer->Put(0, {&key, 1}, out.data()));
  }
  const auto time = [&](const auto& lookup) {
    const double begin = Seconds();
    for (size_t b = 0; b < batches; ++b) lookup(Span<const Key>(&ids[b * options.batch], options.batch));
    return (Seconds() - begin) / static_cast<double>(ids.size()) * 1e9;
  };
  const auto serve = [&](Span<const Key> some) {
    const het::serve::RowRead<het::serve::ServeFile> read{file.get(), some, out.data()};
    Check(het::serve::LookupRows<het::serve::ServeFile>({&read, 1}));
  };
  const auto live = [&](Span<const Key> some) {
    const het::follow::LiveRead read{0, some, out.data()};
    uint64_t seen = 0;
    Check(reader->Lookup({&read, 1}, &seen));
  };

  std::atomic<bool> done{!options.writing};
  std::thread follower([&] {
    std::vector<float> row(options.dim, 1);
    std::mt19937_64 keys(2);
    while (!done) {
      for (int i = 0; i < 100; ++i) {
        const Key key = static_cast<Key>(keys() % options.rows);
        Check(writer->Put(0, {&key, 1}, row.data()));
      }
      usleep(1000);  // up to 100,000 rows a second
    }
  });
  (void)time(serve);
  (void)time(live);
  std::vector<double> of_serve, of_live, ratios;
  for (size_t turn = 0; turn < options.turns; ++turn) {
    of_serve.push_back(time(serve));
    of_live.push_back(time(live));
    ratios.push_back(of_live.back() / of_serve.back());
  }
  done = true;
  follower.join();
  std::printf(
      "{\"rows\": %zu, \"dim\": %zu, \"batch\": %zu, \"writing\": %s, \"serve_ns\": %.1f, \"live_ns\": %.1f, "
      "\"ratio\": %.3f}\n",
      options.rows, options.dim, options.batch, options.writing ? "true" : "false", Median(of_serve),
      Median(of_live), Median(ratios));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
    if (is("--writing")) {
      options.writing = true;
      continue;
    }
    size_t* const value = is("--rows")    ? &options.rows
                          : is("--dim")   ? &options.dim
                          : is("--batch") ? &options.batch
                          : is("--turns") ? &options.turns
                                          : nullptr;
    if (value == nullptr || i + 1 == argc) {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
    *value = std::strtoull(argv[++i], nullptr, 10);
  }
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("live_lookup_" + std::to_string(getpid()))).string();
  std::filesystem::create_directories(folder);
  const int result = Run(options, folder);
  std::filesystem::remove_all(folder);
  return result;
}
