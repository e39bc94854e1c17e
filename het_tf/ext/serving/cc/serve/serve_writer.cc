#include "het_tf/ext/serving/cc/serve/serve_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "het_tf/ext/serving/cc/serve/row_codec.h"

namespace het::serve {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

// A load of 3/4: 15 keys for 4 buckets of five.
uint64_t BucketsFor(uint64_t rows) { return std::max<uint64_t>(1, (rows * 4 + 14) / 15); }

// Puts keys into buckets. Returns false if a search would take too long.
bool Place(const Vector<Key>& keys, uint64_t seed, Vector<Bucket>* buckets, uint32_t* probes) {
  const uint64_t count = buckets->size();
  *probes = 1;
  for (size_t i = 0; i < keys.size(); ++i) {
    uint64_t at = HomeBucket(HashKey(keys[i], seed), count);
    for (uint32_t probe = 1;; ++probe) {
      if (probe > kMaxProbes) return false;
      Bucket& bucket = (*buckets)[at];
      uint32_t place = 0;
      while (place < bucket.count && bucket.key[place] != keys[i]) ++place;
      if (place < kBucketKeys) {
        if (place == bucket.count) ++bucket.count;
        bucket.key[place] = keys[i];
        bucket.row[place] = static_cast<uint32_t>(i);
        *probes = std::max(*probes, probe);
        break;
      }
      bucket.more = 1;
      at = at + 1 == count ? 0 : at + 1;
    }
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<ServeWriter>> ServeWriter::Create(const std::string& path, const Schema& schema,
                                                         const WriteOptions& options) {
  HET_ASSIGN_OR_RETURN(auto file, File::Create(path));
  std::unique_ptr<ServeWriter> writer(new ServeWriter(std::move(file), schema, options));
  HET_RETURN_IF_ERROR(writer->Begin());
  return writer;
}

ServeWriter::ServeWriter(File file, const Schema& schema, const WriteOptions& options)
    : file_(std::move(file)), schema_(schema), options_(options) {}

Status ServeWriter::Begin() {
  std::memcpy(header_.magic, kMagic, sizeof kMagic);
  header_.version = kVersion;
  header_.header_bytes = sizeof(Header);
  header_.dim = schema_->dim();
  header_.row_type = options_.row_type;
  header_.row_bytes = static_cast<uint32_t>(RowBytes(options_.row_type, schema_->dim()));
  header_.unknown = options_.unknown;
  // A header of zeros is invalid, so the file counts only from Finish on.
  const Header nothing = {};
  HET_RETURN_IF_ERROR(Write(&nothing, sizeof nothing));
  const std::string spec = schema_->ToJson();
  if (spec.size() > kMaxSpecBytes) {
    return InvalidArgument("the spec of table '" + schema_->spec().name.substr(0, 64) +
                           "...' is too long for a serving file; give the table a shorter name");
  }
  header_.spec_offset = offset_;
  header_.spec_bytes = spec.size();
  header_.spec_checksum = Checksum::Of(spec.data(), spec.size());
  HET_RETURN_IF_ERROR(Write(spec.data(), spec.size()));
  HET_RETURN_IF_ERROR(Pad());
  header_.rows_offset = offset_;
  return Status();
}

Status ServeWriter::Add(Span<const Key> keys, const float* rows, size_t stride) {
  if (keys_.size() + keys.size() > kMaxRows) {
    return Status(Code::kResourceExhausted, path() + ": a serving file holds at most " +
                                                std::to_string(kMaxRows) +
                                                " rows; export fewer, by min_count or max_age");
  }
  const size_t row_bytes = header_.row_bytes;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!Fits(options_.row_type, rows + i * stride, schema_->dim())) {
      return InvalidArgument("rows is 'float16', which ends at 65504, and the row of id " +
                             std::to_string(keys[i]) + " of table '" + schema_->spec().name +
                             "' has larger values; use rows='bfloat16'");
    }
    const size_t at = buffer_.size();
    buffer_.resize(at + row_bytes);
    EncodeRow(options_.row_type, rows + i * stride, schema_->dim(), buffer_.data() + at);
    rows_.Add(buffer_.data() + at, row_bytes);
    offset_ += row_bytes;
    keys_.push_back(keys[i]);
    if (buffer_.size() >= kBufferBytes) HET_RETURN_IF_ERROR(Flush());
  }
  return Status();
}

Status ServeWriter::Finish() {
  header_.rows = keys_.size();
  HET_RETURN_IF_ERROR(Pad());
  HET_RETURN_IF_ERROR(WriteIndex());
  HET_RETURN_IF_ERROR(Flush());
  HET_RETURN_IF_ERROR(file_.Sync());
  header_.file_bytes = offset_;
  header_.rows_checksum = rows_.value();
  header_.checksum = Checksum::Of(&header_, offsetof(Header, checksum));
  HET_RETURN_IF_ERROR(file_.WriteAt(0, &header_, sizeof header_));
  HET_RETURN_IF_ERROR(file_.Sync());
  file_.Keep();
  return Status();
}

Status ServeWriter::WriteIndex() {
  Vector<Bucket> buckets;
  for (uint64_t count = BucketsFor(keys_.size());; count = count * 2 + 1) {
    buckets.assign(count, Bucket());
    if (Place(keys_, header_.hash_seed, &buckets, &header_.probes)) break;
  }
  header_.buckets = buckets.size();
  header_.buckets_offset = offset_;
  header_.buckets_checksum = Checksum::Of(buckets.data(), buckets.size() * sizeof(Bucket));
  return Write(buckets.data(), buckets.size() * sizeof(Bucket));
}

Status ServeWriter::Pad() {
  const uint8_t zeros[kAlign] = {};
  return Write(zeros, AlignUp(offset_) - offset_);
}

Status ServeWriter::Write(const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  while (size > 0) {
    const size_t some = std::min(size, kBufferBytes);
    buffer_.insert(buffer_.end(), bytes, bytes + some);
    offset_ += some;
    bytes += some;
    size -= some;
    if (buffer_.size() >= kBufferBytes) HET_RETURN_IF_ERROR(Flush());
  }
  return Status();
}

Status ServeWriter::Flush() {
  const uint64_t begin = offset_ - buffer_.size();
  HET_RETURN_IF_ERROR(file_.WriteAt(begin, buffer_.data(), buffer_.size()));
  file_.StartWriting(begin, buffer_.size());
  buffer_.clear();
  return Status();
}

}  // namespace het::serve
