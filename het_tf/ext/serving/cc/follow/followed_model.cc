#include "het_tf/ext/serving/cc/follow/followed_model.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "het_tf/ext/serving/cc/follow/boot_clock.h"
#include "het_tf/ext/serving/cc/open_objects.h"

namespace het::follow {
namespace {

constexpr char kLiveDirectory[] = "het_live";
constexpr uint64_t kTellEvery = 1000000000;  // nanoseconds between two notices

constexpr MappedFile::Kind kFollowFiles = {
    "description of a native export", "a SavedModel keeps it under assets/: copy or move it as a whole",
    "export the model again",         "",
    Code::kInvalidArgument,           Code::kInvalidArgument};

// Never destroyed: kernels may outlive static destructors.
auto& Models() {
  static auto* models = new OpenObjects<std::pair<std::string, MappedFile::Identity>, FollowedModel>();
  return *models;
}

double SecondsBetween(uint64_t from, uint64_t to) {
  return to > from ? static_cast<double>(to - from) * 1e-9 : 0;
}

std::string SecondsText(double seconds) {
  char text[32];
  (void)std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

}  // namespace

Result<FollowSpec> ParseFollowSpec(const std::string& text) {
  FollowSpec spec;
  try {
    const auto json = nlohmann::json::parse(text);
    for (const auto& table : json.at("tables")) {
      spec.files.push_back(table.at("file").get<std::string>());
      spec.tables.push_back(table.at("name").get<std::string>());
    }
    if (!json.at("dense").is_null()) spec.dense = json["dense"].at("file").get<std::string>();
    if (!json.at("max_age").is_null()) spec.max_age = json["max_age"].get<double>();
    const auto stale = json.at("stale").get<std::string>();
    if (stale != "serve" && stale != "fail") return InvalidArgument("follow.json: stale is '" + stale + "'");
    spec.fail = stale == "fail";
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(std::string("follow.json is not one of a native export: ") + error.what());
  }
  return spec;
}

FollowedModel::FollowedModel(MappedFile file, std::string directory, FollowSpec spec,
                             std::unique_ptr<LiveReader> reader)
    : file_(std::move(file)),
      directory_(std::move(directory)),
      spec_(std::move(spec)),
      reader_(std::move(reader)) {}

Result<std::shared_ptr<FollowedModel>> FollowedModel::Open(const std::string& path) {
  HET_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path, kFollowFiles));
  return Models().Get({path, file.identity()}, [&] { return OpenNew(path, std::move(file)); });
}

Result<std::shared_ptr<FollowedModel>> FollowedModel::OpenNew(const std::string& path, MappedFile file) {
  HET_ASSIGN_OR_RETURN(const auto text, file.At<char>(0, file.size()));
  HET_ASSIGN_OR_RETURN(FollowSpec spec, ParseFollowSpec(std::string(text.data(), text.size())));
  const std::filesystem::path assets = std::filesystem::absolute(path).parent_path();
  const std::filesystem::path directory = assets.parent_path();
  std::vector<std::string> files;
  for (const std::string& name : spec.files) files.push_back((assets / name).string());
  if (!spec.dense.empty()) spec.dense = (assets / spec.dense).string();
  HET_ASSIGN_OR_RETURN(auto reader, LiveReader::Open((directory / kLiveDirectory).string(), files));
  for (size_t i = 0; i < reader->tables(); ++i) {
    const std::string& table = reader->base(i).schema().spec().name;
    if (table == spec.tables[i]) continue;
    return InvalidArgument(files[i] + " has the rows of table '" + table + "', and " + path +
                           " says that it has those of table '" + spec.tables[i] +
                           "'; the SavedModel mixes parts of several models: copy it as a whole");
  }
  return std::shared_ptr<FollowedModel>(
      new FollowedModel(std::move(file), directory.string(), std::move(spec), std::move(reader)));
}

Result<size_t> FollowedModel::Find(const std::string& file) const {
  const auto found = std::find(spec_.files.begin(), spec_.files.end(), file);
  if (found != spec_.files.end()) return static_cast<size_t>(found - spec_.files.begin());
  return InvalidArgument(file_.path() + " has no table in '" + file +
                         "': another SavedModel was exported or copied to its place; load that one");
}

Result<FollowedModel::Dense> FollowedModel::ReadDense() {
  for (;;) {
    HET_ASSIGN_OR_RETURN(const auto state, reader_->state());
    const Version& version = state.version;
    std::lock_guard<std::mutex> lock(mutex_);
    if (dense_ != nullptr && version.number == dense_version_.number &&
        version.dense_path == dense_version_.dense_path) {
      return Dense{version.number, dense_};
    }
    const std::string path = version.dense_path.empty()
                                 ? spec_.dense
                                 : directory_ + "/" + kLiveDirectory + "/" + version.dense_path;
    auto file = DenseFile::Open(path);
    if (!file.ok()) {
      // The follower may remove a version's file when the next one is in force.
      HET_ASSIGN_OR_RETURN(const auto now, reader_->state());
      if (now.version.number != version.number) continue;
      return file.status();
    }
    dense_version_ = version;
    dense_ = std::move(file.value());
    return Dense{version.number, dense_};
  }
}

Status FollowedModel::Lookup(Span<const LiveRead> reads) {
  const uint64_t now = BootNanoseconds();
  uint64_t seen = 0;
  HET_RETURN_IF_ERROR(reader_->Lookup(reads, &seen));
  return CheckAge(now, seen);
}

Status FollowedModel::CheckAge(uint64_t now, uint64_t seen) {
  if (!spec_.max_age) return Status();
  const double age = SecondsBetween(seen, now);
  if (seen != 0 && age <= *spec_.max_age) return Status();
  const std::string text =
      "the rows of " + directory_ +
      (seen == 0 ? " are of unknown age: no follower has shown the store's rows since this machine started"
                 : " are " + SecondsText(age) + " old") +
      ", and max_age is " + SecondsText(*spec_.max_age) + "; is `het serve follow " + directory_ +
      "` running, and does the store answer?";
  if (spec_.fail) return FailedPrecondition(text);
  uint64_t told = told_;
  if ((told == 0 || now - told >= kTellEvery) && told_.compare_exchange_strong(told, now)) {
    std::fprintf(stderr, "het_tf: %s\n", text.c_str());
  }
  return Status();
}

}  // namespace het::follow
