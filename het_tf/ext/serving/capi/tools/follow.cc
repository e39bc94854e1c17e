#include "het_tf/ext/serving/capi/tools/follow.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/base/answer.h"
#include "het_tf/core/base/background.h"
#include "het_tf/ext/ps/client/redis_changes.h"
#include "het_tf/ext/serving/cc/follow/follower.h"
#include "het_tf/ext/serving/cc/follow/live_reader.h"
#include "het_tf/ext/serving/cc/follow/live_writer.h"

namespace het::follow {
namespace {

Result<std::vector<Position>> ParsePositions(const nlohmann::json& json) {
  std::vector<Position> positions;
  for (const auto& text : json) {
    Position& position = positions.emplace_back();
    if (!ParsePosition(text.get<std::string>(), &position)) {
      return InvalidArgument("a position is '" + text.get<std::string>() + "', not INCARNATION:NUMBER");
    }
  }
  return positions;
}

// A follower and its thread.
class Following {
 public:
  static Result<std::unique_ptr<Following>> Open(const nlohmann::json& json) {
    std::unique_ptr<Following> made(new Following());
    FollowerOptions options;
    options.poll = json.at("poll").get<double>();
    options.max_page_bytes = json.at("page_bytes").get<size_t>();
    HET_ASSIGN_OR_RETURN(options.rows, ParseRowFormat(json.at("rows").get<std::string>()));
    HET_ASSIGN_OR_RETURN(options.base, ParsePositions(json.at("positions")));
    HET_ASSIGN_OR_RETURN(const auto address, ParseServerAddress(json.at("address").get<std::string>()));
    HET_ASSIGN_OR_RETURN(made->source_, RedisChanges::Open(address, json.at("namespace").get<std::string>(),
                                                           json.at("timeout").get<double>()));
    HET_ASSIGN_OR_RETURN(made->writer_, LiveWriter::Open(json.at("directory").get<std::string>(),
                                                         json.at("base").get<std::vector<std::string>>()));
    HET_ASSIGN_OR_RETURN(made->follower_,
                         Follower::Create(made->source_.get(), made->writer_.get(), options));
    made->background_.Wake();
    return made;
  }

  // Calls Follower::Offer or RollBack.
  using Take = Status (Follower::*)(Version, std::vector<Position>);
  Status Give(const nlohmann::json& json, Take take) {
    Version version;
    version.number = json.at("number").get<uint64_t>();
    version.dense_path = json.at("dense").get<std::string>();
    if (!json.at("trained_through").is_null())
      version.trained_through = json["trained_through"].get<double>();
    HET_ASSIGN_OR_RETURN(std::vector<Position> cut, ParsePositions(json.at("cut")));
    std::lock_guard<std::mutex> lock(mutex_);
    HET_RETURN_IF_ERROR((follower_.get()->*take)(std::move(version), std::move(cut)));
    background_.Wake();
    return Status();
  }

  std::string Report() {
    std::lock_guard<std::mutex> lock(mutex_);
    return follower_->Report();
  }

 private:
  Following() : background_([this] { return Run(); }) {}

  Background::Pause Run() {
    Background::Pause pause;
    std::lock_guard<std::mutex> lock(mutex_);
    try {
      pause.seconds = follower_->Step();
      source_->Descriptors(&pause.descriptors);
    } catch (const std::bad_alloc&) {
      pause.seconds = 1;
      pause.descriptors.clear();
    }
    return pause;
  }

  std::unique_ptr<RedisChanges> source_;
  std::unique_ptr<LiveWriter> writer_;
  std::mutex mutex_;  // guards the three
  std::unique_ptr<Follower> follower_;
  Background background_;  // the last member: it ends first
};

Result<nlohmann::json> Inspect(const nlohmann::json& json) {
  HET_ASSIGN_OR_RETURN(auto reader, LiveReader::Open(json.at("directory").get<std::string>(),
                                                     json.at("base").get<std::vector<std::string>>()));
  HET_ASSIGN_OR_RETURN(const LiveReader::State state, reader->state());
  nlohmann::json text = {{"live", state.live},
                         {"version", state.version.number},
                         {"dense", state.version.dense_path},
                         {"trained_through", nullptr},
                         {"age", nullptr},
                         {"skew", nullptr},
                         {"generation", state.generation},
                         {"rows", nlohmann::json::array()}};
  for (size_t table = 0; state.live && table < reader->tables(); ++table) {
    HET_ASSIGN_OR_RETURN(const uint64_t rows, reader->CountRows(table));
    text["rows"].push_back(rows);
  }
  if (state.version.trained_through) text["trained_through"] = *state.version.trained_through;
  if (state.skew) text["skew"] = *state.skew;
  const uint64_t now = BootNanoseconds();
  if (state.seen != 0) text["age"] = static_cast<double>(now - std::min(now, state.seen)) * 1e-9;
  return text;
}

// Runs body() -> Status, which reads JSON.
template <typename Body>
int AnswerJson(const Body& body) {
  return het::Answer([&]() -> Status {
    try {
      return body();
    } catch (const nlohmann::json::exception& error) {
      return InvalidArgument(std::string("these are not the options of a follower: ") + error.what());
    }
  });
}

}  // namespace
}  // namespace het::follow

using het::Status;
using het::follow::Follower;
using het::follow::Following;

int HetFollowOpen(const char* options, void** follower) {
  return het::follow::AnswerJson([&]() -> Status {
    HET_ASSIGN_OR_RETURN(auto opened, Following::Open(nlohmann::json::parse(options)));
    *follower = opened.release();
    return Status();
  });
}

int HetFollowOffer(void* follower, const char* version) {
  return het::follow::AnswerJson([&] {
    return static_cast<Following*>(follower)->Give(nlohmann::json::parse(version), &Follower::Offer);
  });
}

int HetFollowRollBack(void* follower, const char* version) {
  return het::follow::AnswerJson([&] {
    return static_cast<Following*>(follower)->Give(nlohmann::json::parse(version), &Follower::RollBack);
  });
}

int HetFollowStatus(void* follower) {
  return het::Answer([&] {
    het::Text() = static_cast<Following*>(follower)->Report();
    return Status();
  });
}

int HetFollowInspect(const char* options) {
  return het::follow::AnswerJson([&]() -> Status {
    HET_ASSIGN_OR_RETURN(const nlohmann::json state, het::follow::Inspect(nlohmann::json::parse(options)));
    het::Text() = state.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return Status();
  });
}

void HetFollowClose(void* follower) { delete static_cast<Following*>(follower); }
