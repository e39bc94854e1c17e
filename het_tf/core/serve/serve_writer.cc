#include "het_tf/core/serve/serve_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "het_tf/core/serve/row_codec.h"

namespace het::serve {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

// Three keys in four places.
uint64_t BucketsFor(uint64_t rows) { return std::max<uint64_t>(1, (rows * 4 + 14) / 15); }

// Puts keys into buckets; false: a search would take too long.
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
  const int file = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (file < 0) {
    if (errno == EEXIST) {
      return Status(Code::kAlreadyExists, path + " exists; give a path where there is nothing");
    }
    return Status(Code::kUnavailable, "cannot make " + path + ": " + std::strerror(errno));
  }
  std::unique_ptr<ServeWriter> writer(new ServeWriter(path, file, schema, options));
  HET_RETURN_IF_ERROR(writer->Begin());
  return writer;
}

ServeWriter::ServeWriter(std::string path, int file, const Schema& schema, const WriteOptions& options)
    : path_(std::move(path)), file_(file), schema_(schema), options_(options) {}

ServeWriter::~ServeWriter() {
  close(file_);
  if (!finished_) unlink(path_.c_str());
}

Status ServeWriter::Begin() {
  std::memcpy(header_.magic, kMagic, sizeof kMagic);
  header_.version = kVersion;
  header_.header_bytes = sizeof(Header);
  header_.dim = schema_->dim();
  header_.row_type = options_.row_type;
  header_.row_bytes = static_cast<uint32_t>(RowBytes(options_.row_type, schema_->dim()));
  header_.unknown = options_.unknown;
  // A header of zeros is nobody's: what is in the file counts from Finish on.
  const Header nothing = {};
  HET_RETURN_IF_ERROR(Write(&nothing, sizeof nothing));
  const std::string spec = schema_->ToJson();
  if (spec.size() > kMaxSpecBytes) {
    return InvalidArgument("the spec of table '" + schema_->spec().name.substr(0, 64) +
                           "...' is too long for a serving file; give the table a shorter name");
  }
  header_.spec_offset = offset_;
  header_.spec_bytes = spec.size();
  header_.spec_checksum = ChecksumOf(spec.data(), spec.size());
  HET_RETURN_IF_ERROR(Write(spec.data(), spec.size()));
  HET_RETURN_IF_ERROR(Pad());
  header_.rows_offset = offset_;
  return Status();
}

Status ServeWriter::Add(Span<const Key> keys, const float* rows, size_t stride) {
  if (keys_.size() + keys.size() > kMaxRows) {
    return Status(Code::kResourceExhausted, path_ + ": a serving file holds at most " +
                                                std::to_string(kMaxRows) +
                                                " rows; export fewer, by min_count or max_age");
  }
  const size_t row_bytes = header_.row_bytes;
  Vector<uint8_t> row(row_bytes);
  for (size_t i = 0; i < keys.size(); ++i) {
    EncodeRow(options_.row_type, rows + i * stride, schema_->dim(), row.data());
    rows_checksum_.Add(row.data(), row_bytes);
    HET_RETURN_IF_ERROR(Write(row.data(), row_bytes));
    keys_.push_back(keys[i]);
  }
  return Status();
}

Status ServeWriter::Finish() {
  header_.rows = keys_.size();
  header_.rows_checksum = rows_checksum_.value();
  HET_RETURN_IF_ERROR(Pad());
  HET_RETURN_IF_ERROR(WriteIndex());
  HET_RETURN_IF_ERROR(Flush());
  if (fsync(file_) != 0) return Error("write");
  header_.file_bytes = offset_;
  header_.checksum = ChecksumOf(&header_, offsetof(Header, checksum));
  if (pwrite(file_, &header_, sizeof header_, 0) != static_cast<ssize_t>(sizeof header_)) {
    return Error("write");
  }
  if (fsync(file_) != 0) return Error("write");
  finished_ = true;
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
  header_.buckets_checksum = ChecksumOf(buckets.data(), buckets.size() * sizeof(Bucket));
  return Write(buckets.data(), buckets.size() * sizeof(Bucket));
}

Status ServeWriter::Pad() {
  const uint8_t zeros[kAlign] = {};
  return Write(zeros, AlignUp(offset_) - offset_);
}

Status ServeWriter::Write(const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  offset_ += size;
  if (buffer_.capacity() < kBufferBytes) buffer_.reserve(kBufferBytes);
  while (size > 0) {
    const size_t fits = std::min(size, kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes, bytes + fits);
    bytes += fits;
    size -= fits;
    if (buffer_.size() == kBufferBytes) HET_RETURN_IF_ERROR(Flush());
  }
  return Status();
}

Status ServeWriter::Flush() {
  for (size_t done = 0; done < buffer_.size();) {
    const ssize_t wrote = write(file_, buffer_.data() + done, buffer_.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return Error("write");
    done += static_cast<size_t>(wrote);
  }
  buffer_.clear();
  return Status();
}

Status ServeWriter::Error(const char* what) const {
  return Status(Code::kUnavailable, std::string("cannot ") + what + " " + path_ + ": " +
                                        std::strerror(errno) +
                                        "; nothing of it stays. Make room there, or give another path");
}

}  // namespace het::serve
