// A regular file, mapped for reading: processes that map it share one copy in memory, and unread pages take
// none. It offers what a format made of sections needs: the check of its head, and spans inside the file. The
// format itself must check the contents of its sections (graph_file.h, serve_file.h).
//
//   HET_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path, kMyFiles));
//   HET_RETURN_IF_ERROR(file.ReadHead(kMagic, kVersion, &head));
//   HET_ASSIGN_OR_RETURN(Span<const float> rows, file.Section<float>(head.rows_at, head.rows));
//
// 1. Lifetime. The destructor unmaps the file; spans must not outlive the object. A move keeps them
//    valid. The descriptor is closed before Open returns.
// 2. A mapped file must not change. Replace it by renaming another file over it: readers keep the
//    old one. Truncating a file in place kills its readers (SIGBUS).
// 3. Errors name the file and the remedy of its kind (MappedFile::Kind).
//
// Thread-safe: nothing changes after ReadHead.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>

#include "het_tf/core/base/span.h"
#include "het_tf/core/base/status.h"

namespace het {

class MappedFile {
 public:
  // Words for messages about a kind of file.
  struct Kind {
    const char* name;          // "graph": "the graph PATH is damaged: ..."
    const char* if_missing;    // remedy for a file that cannot be opened
    const char* if_damaged;    // remedy for a damaged file
    const char* if_versioned;  // remedy for a file of another version
    Code damaged;
    Code versioned;
  };
  // Identifies the file at a path: device, inode, size, mtime in seconds and nanoseconds.
  using Identity = std::tuple<dev_t, ino_t, off_t, int64_t, int64_t>;
  static constexpr size_t kAlign = 64;  // sections begin at multiples of it
  static constexpr size_t kMagicBytes = 8;

  // Returns the identity of the file that Open would open now. NotFound, File: as Open.
  static Result<Identity> Find(const std::string& path, const Kind& kind);
  // `kind` must outlive the file. NotFound: there is no such file. File: the system refuses it.
  // InvalidArgument: it is a folder, a FIFO or the like; this never waits. kind.damaged: it is empty.
  static Result<MappedFile> Open(const std::string& path, const Kind& kind);

  const std::string& path() const { return path_; }
  const Identity& identity() const { return identity_; }
  size_t size() const { return bytes_.get_deleter().size; }

  // Reads the head of our files: 8 bytes of magic, version, its own length, the file's length; its last 8
  // bytes are the checksum of the bytes before. Sections follow. kind.versioned: the version is wrong;
  // kind.damaged: another field is.
  template <typename Head>
  Status ReadHead(const char (&magic)[kMagicBytes], uint32_t version, Head* head) {
    static_assert(std::is_trivially_copyable_v<Head> && sizeof(Head) > kMagicBytes + 24);
    return ReadHead(magic, version, head, sizeof(Head));
  }

  // Returns `count` elements at `offset`. kind.damaged: they are outside the file or not aligned.
  template <typename T>
  Result<Span<const T>> At(uint64_t offset, uint64_t count) const {
    static_assert(std::is_trivially_copyable_v<T>);
    HET_RETURN_IF_ERROR(CheckRange(offset, count, sizeof(T), alignof(T)));
    return Span<const T>(reinterpret_cast<const T*>(bytes_.get() + offset), static_cast<size_t>(count));
  }
  // The same for a section, which is past the head and at a multiple of kAlign.
  template <typename T>
  Result<Span<const T>> Section(uint64_t offset, uint64_t count) const {
    static_assert(alignof(T) <= kAlign);
    HET_RETURN_IF_ERROR(CheckRange(offset, count, sizeof(T), kAlign, head_bytes_));
    return Span<const T>(reinterpret_cast<const T*>(bytes_.get() + offset), static_cast<size_t>(count));
  }

  // "the graph PATH is damaged: WHAT; REMEDY"
  Status Damaged(const std::string& what) const;

 private:
  struct Unmap {
    size_t size;
    void operator()(const uint8_t* bytes) const;
  };

  MappedFile(std::string path, const Kind& kind) : path_(std::move(path)), kind_(&kind) {}
  Status Map(int descriptor);
  Status ReadHead(const char* magic, uint32_t version, void* head, size_t bytes);
  Status CheckRange(uint64_t offset, uint64_t count, size_t element, size_t align, uint64_t least = 0) const;

  std::string path_;
  const Kind* kind_;
  Identity identity_;
  std::unique_ptr<const uint8_t, Unmap> bytes_;
  size_t head_bytes_ = 0;
};

}  // namespace het
