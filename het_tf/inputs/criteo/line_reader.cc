#include "het_tf/inputs/criteo/line_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

namespace het {
namespace {

// Reads a file sequentially, from its beginning or an offset.
class Stream {
 public:
  virtual ~Stream() = default;
  // Returns "" or an error.
  virtual std::string Seek(int64_t offset) = 0;
  // Reads `bytes` bytes, or fewer only at the end.
  virtual std::string Read(char* to, size_t bytes, size_t* count) = 0;
};

struct CloseFile {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
  void operator()(gzFile_s* file) const { (void)gzclose(file); }
};

// Returns a descriptor; or -1 and an error. Opening a FIFO must not wait for a writer; it is refused.
int OpenRegular(const std::string& path, std::string* wrong) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat about {};
  if (descriptor < 0 || fstat(descriptor, &about) != 0) {
    *wrong = std::strerror(errno);
  } else if (S_ISREG(about.st_mode)) {
    return descriptor;
  } else {
    *wrong = "not a regular file";
  }
  if (descriptor >= 0) (void)close(descriptor);
  return -1;
}

class PlainStream final : public Stream {
 public:
  explicit PlainStream(int descriptor) : file_(fdopen(descriptor, "rb")) {}
  std::string Seek(int64_t offset) override {
    if (file_ == nullptr || fseeko(file_.get(), offset, SEEK_SET) != 0) return std::strerror(errno);
    return "";
  }
  std::string Read(char* to, size_t bytes, size_t* count) override {
    *count = std::fread(to, 1, bytes, file_.get());
    return std::ferror(file_.get()) != 0 ? std::strerror(errno) : "";
  }

 private:
  std::unique_ptr<std::FILE, CloseFile> file_;
};

class GzipStream final : public Stream {
 public:
  explicit GzipStream(int descriptor) : file_(gzdopen(descriptor, "rb")) {
    if (file_ != nullptr) (void)gzbuffer(file_.get(), 1 << 18);
  }
  std::string Seek(int64_t offset) override {
    if (file_ == nullptr) return std::strerror(errno);
    if (gzdirect(file_.get()) != 0) return "not a gzip file";
    if (gztell(file_.get()) == offset) return "";
    return gzseek(file_.get(), offset, SEEK_SET) == offset ? "" : Error();
  }
  std::string Read(char* to, size_t bytes, size_t* count) override {
    const int got = gzread(file_.get(), to, static_cast<unsigned>(bytes));
    *count = got < 0 ? 0 : static_cast<size_t>(got);
    int code = Z_OK;
    (void)gzerror(file_.get(), &code);
    return got < 0 || code == Z_BUF_ERROR ? Error() : "";  // Z_BUF_ERROR: the file ends within its data
  }

 private:
  std::string Error() const {
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    return code == Z_ERRNO ? std::strerror(errno) : text;
  }
  std::unique_ptr<gzFile_s, CloseFile> file_;
};

// A stream, and bytes that were read from it but not returned.
struct Standing {
  std::unique_ptr<Stream> stream;
  std::string rest;
};

// Streams by path and by the offset of their first unreturned byte.
class KeptStreams {
 public:
  Standing Take(const std::string& path, int64_t offset) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
      if (it->path != path || it->offset != offset) continue;
      Standing standing = std::move(it->standing);
      kept_.erase(it);
      return standing;
    }
    return {};
  }
  void Keep(const std::string& path, int64_t offset, Standing standing) {
    std::lock_guard<std::mutex> lock(mutex_);
    kept_.push_back({path, offset, std::move(standing)});
    if (kept_.size() > kKept) kept_.pop_front();
  }

 private:
  static constexpr size_t kKept = 16;
  struct Kept {
    std::string path;
    int64_t offset;
    Standing standing;
  };
  std::mutex mutex_;
  std::deque<Kept> kept_;  // newest last
};

KeptStreams& TheKeptStreams() {
  static auto* const streams = new KeptStreams;  // threads may read while the process ends
  return *streams;
}

bool IsGzip(const std::string& path) {
  return path.size() > 3 && path.compare(path.size() - 3, 3, ".gz") == 0;
}

Status CannotRead(const std::string& path, int64_t line, const std::string& why) {
  return InvalidArgument(path + ", after line " + std::to_string(line) + ": cannot be read (" + why +
                         "). Is it complete, and gzip exactly if its name ends in .gz? Download it again, "
                         "or rename it.");
}

Result<Standing> Open(const std::string& path, const LinePosition& at) {
  Standing standing = TheKeptStreams().Take(path, at.offset);
  if (standing.stream != nullptr) return standing;
  std::string wrong;
  const int descriptor = OpenRegular(path, &wrong);
  if (descriptor < 0) return CannotRead(path, at.line, wrong);
  if (IsGzip(path)) {
    standing.stream = std::make_unique<GzipStream>(descriptor);
  } else {
    standing.stream = std::make_unique<PlainStream>(descriptor);
  }
  wrong = standing.stream->Seek(at.offset);
  if (!wrong.empty()) return CannotRead(path, at.line, wrong);
  return standing;
}

// Cuts bytes of a stream into lines, and decides where a returned text ends.
class Cutter {
 public:
  Cutter(const LinesWanted& want, LinePosition at, std::string* text)
      : want_(want), next_(at), cut_(at), text_(text) {}

  // Takes whole lines of `raw`, whose front Drop has removed; at the file's end also an open last line.
  void Take(std::string_view raw, bool ended) {
    while (rows_ < want_.most && taken_ < raw.size()) {
      const size_t newline = raw.find('\n', taken_);
      if (newline == std::string_view::npos && !ended) break;
      const size_t end = std::min(newline, raw.size() - 1) + 1;
      TakeLine(raw.substr(taken_, end - taken_));
      taken_ = end;
      if (rows_ % want_.multiple == 0) Cut();
    }
    if (ended && taken_ == raw.size() && cut_rows_ == 0) Cut();
    AppendRun();
  }
  // Returns the number of bytes in front that were returned to the caller.
  size_t Drop() {
    const size_t bytes = cut_bytes_;
    taken_ -= bytes;
    cut_bytes_ = 0;
    return bytes;
  }
  // Returns the bytes of the unfinished last line.
  size_t open_bytes(std::string_view raw) const { return raw.size() - taken_; }
  bool full() const { return rows_ >= want_.most; }
  bool any() const { return cut_rows_ > 0; }
  LinePosition next() const { return next_; }
  // Ends the returned text, and returns the position behind it.
  LinePosition Finish() {
    text_->resize(cut_text_);
    return cut_;
  }

 private:
  void TakeLine(std::string_view line) {
    std::string_view inner = line;
    if (!inner.empty() && inner.back() == '\n') inner.remove_suffix(1);
    if (want_.wanted(static_cast<uint64_t>(next_.line), inner)) {
      if (run_.data() + run_.size() != line.data()) AppendRun();
      run_ = {line.data() - run_.size(), run_.size() + line.size()};
      ++rows_;
    }
    next_.offset += static_cast<int64_t>(line.size());
    ++next_.line;
  }
  void AppendRun() {
    text_->append(run_);
    run_ = {};
  }
  void Cut() {
    AppendRun();
    cut_ = next_;
    cut_bytes_ = taken_;
    cut_text_ = text_->size();
    cut_rows_ = rows_;
  }

  const LinesWanted& want_;
  LinePosition next_, cut_;
  std::string* const text_;
  std::string_view run_;  // adjacent wanted lines that are not in the text yet
  size_t rows_ = 0, cut_rows_ = 0;
  size_t taken_ = 0, cut_bytes_ = 0;  // offsets in the raw bytes
  size_t cut_text_ = 0;
};

}  // namespace

Status ReadLines(const std::string& path, const LineLimits& limits, const LinesWanted& want, LinePosition* at,
                 std::string* text) {
  HET_ASSIGN_OR_RETURN(Standing standing, Open(path, *at));
  text->clear();
  std::string raw = std::move(standing.rest);
  Cutter cutter(want, *at, text);
  cutter.Take(raw, false);
  for (bool ended = false; !ended && !cutter.full();) {
    raw.erase(0, cutter.Drop());
    if (cutter.open_bytes(raw) > limits.longest) {
      return InvalidArgument(
          path + ", line " + std::to_string(cutter.next().line + 1) + ": has more than " +
          std::to_string(limits.longest) +
          " bytes. This is not a text file of lines; if it is an archive, unpack it first.");
    }
    const size_t had = raw.size();
    raw.resize(had + limits.chunk);
    size_t count = 0;
    const std::string wrong = standing.stream->Read(raw.data() + had, limits.chunk, &count);
    if (!wrong.empty()) return CannotRead(path, cutter.next().line, wrong);
    raw.resize(had + count);
    ended = count < limits.chunk;
    cutter.Take(raw, ended);
  }
  raw.erase(0, cutter.Drop());
  *at = cutter.Finish();
  standing.rest = std::move(raw);
  if (cutter.any()) TheKeptStreams().Keep(path, at->offset, std::move(standing));
  return Status();
}

}  // namespace het
