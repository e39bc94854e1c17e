#include "tests/testing/world/followed.h"

#include <algorithm>
#include <cstdlib>

#include "het_tf/ext/serving/cc/serve/serve_writer.h"

namespace het::testing {
namespace {

template <typename T>
T Required(Result<T> result) {
  if (!result.ok()) std::abort();
  return std::move(result.value());
}

}  // namespace

Followed::Followed(LocalService* service, const std::vector<Schema>& schemas, uint64_t seed)
    : schemas_(schemas), source_(service, seed) {
  source_.late = 0.2;
  source_.lost = 0.05;
  std::vector<std::string> files;
  for (const Schema& schema : schemas) {
    files.push_back(folder_.path() + "/" + schema->spec().name + ".het");
    auto base = Required(serve::ServeWriter::Create(files.back(), schema, serve::WriteOptions()));
    if (!base->Finish().ok()) std::abort();
  }
  const std::string live = folder_.path() + "/het_live";
  writer_ = Required(follow::LiveWriter::Open(live, files));
  follow::FollowerOptions options;
  options.clock = [this] { return now_; };
  follower_ = Required(follow::Follower::Create(&source_, writer_.get(), options));
  reader_ = Required(follow::LiveReader::Open(live, files));
}

void Followed::Note(const TableKey& key, const std::vector<float>& row) {
  Row& known = rows_[key];
  if (known.states.empty()) {  // until now it did not exist
    for (const Schema& schema : schemas_) {
      if (schema->id() != key.first) continue;
      known.states.emplace_back(schema->dim());
      schema->InitValue(key.second, known.states.back().data());
    }
  }
  if (known.states.back() != row) known.states.push_back(row);
}

void Followed::Advance() {
  now_ += 30'000'000;
  follower_->Step();
}

std::string Followed::Step() {
  for (int i = 0; i < 3; ++i) Advance();
  return Check(/*newest=*/false);
}

std::string Followed::CatchUp() {
  const uint64_t since = now_;
  for (int i = 0; i < 5000 && writer_->seen() <= since; ++i) Advance();
  if (writer_->seen() <= since) return "the follower does not catch up: " + follower_->Report();
  return Check(/*newest=*/true);
}

std::string Followed::Check(bool newest) {
  for (auto& [key, row] : rows_) {
    size_t table = 0;
    while (schemas_[table]->id() != key.first) ++table;
    std::vector<float> found(schemas_[table]->dim());
    const follow::LiveRead read{table, {&key.second, 1}, found.data()};
    uint64_t seen = 0;
    const Status status = reader_->Lookup({&read, 1}, &seen);
    if (!status.ok()) return status.message();
    const auto from =
        row.states.begin() + static_cast<std::ptrdiff_t>(newest ? row.states.size() - 1 : row.served);
    const auto state = std::find(from, row.states.end(), found);
    if (state == row.states.end()) {
      return "the follower serves " + std::to_string(found[0]) + " for key " + std::to_string(key.second) +
             " of " + schemas_[table]->spec().name +
             (newest ? ", which is not the newest state" : ", which is older than before");
    }
    row.served = static_cast<size_t>(state - row.states.begin());
  }
  return "";
}

}  // namespace het::testing
