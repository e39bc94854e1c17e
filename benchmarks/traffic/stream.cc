#include "benchmarks/traffic/stream.h"

#include <algorithm>

namespace het::traffic {
namespace {

constexpr uint64_t kMagic = 0x31534d4152545348;  // "HSTRAMS1"
constexpr const char* kRemedy = "benchmarks/traffic/run.py writes such files";
constexpr MappedFile::Kind kStreams = {
    "stream", kRemedy, kRemedy, kRemedy, Code::kInvalidArgument, Code::kInvalidArgument};

}  // namespace

Result<std::unique_ptr<Stream>> Stream::Open(const std::string& path) {
  HET_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path, kStreams));
  std::unique_ptr<Stream> stream(new Stream(std::move(file)));
  HET_RETURN_IF_ERROR(stream->Read());
  return stream;
}

Status Stream::Read() {
  HET_ASSIGN_OR_RETURN(const auto head, file_.At<uint64_t>(0, 4));
  const uint64_t samples = head[1], fields = head[2], distinct = head[3];
  if (head[0] != kMagic || fields == 0) return file_.Damaged("it does not begin as a stream does");
  HET_ASSIGN_OR_RETURN(keys_, file_.At<Key>(4 * sizeof(uint64_t), distinct));
  if (samples > file_.size() / fields) return file_.Damaged("it has fewer samples than its head says");
  const uint64_t ids_at = (4 + distinct) * sizeof(uint64_t);
  HET_ASSIGN_OR_RETURN(ids_, file_.At<uint32_t>(ids_at, samples * fields));
  if (ids_at + ids_.size() * sizeof(uint32_t) != file_.size()) {
    return file_.Damaged("it has more bytes than its head says");
  }
  samples_ = samples;
  fields_ = fields;
  const bool known = std::all_of(ids_.begin(), ids_.end(), [&](uint32_t id) { return id < distinct; });
  return known ? Status() : file_.Damaged("an id is past the last key");
}

}  // namespace het::traffic
