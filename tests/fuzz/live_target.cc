// What a serving process maps while a follower writes it, and what the next follower goes on with: one of the
// live files has any bytes, the others are good. A reader serves, or reports a damaged file; a writer goes
// on, or begins anew.
//
// An input is a byte, which file, and the file. What differs by run and machine (base, run, boot ID), the
// length and the checksum are made right in the head before the file is opened, unless the byte says not to:
// else nothing except them would be tried. So is the checksum of the first position.

#include <filesystem>

#include "het_tf/ext/serving/cc/follow/live_reader.h"
#include "het_tf/ext/serving/cc/follow/live_writer.h"
#include "het_tf/ext/serving/cc/serve/serve_writer.h"
#include "tests/fuzz/target.h"
#include "tests/testing/change_head.h"

namespace het::fuzz {
namespace {

using namespace het::follow;

enum Part : uint8_t { kControl, kPositions, kTable, kParts };
constexpr uint8_t kAsItIs = 0x80;
constexpr uint64_t kFirstFile = 1;  // of table 0

// A base of two tables, and the live files of a follower that has written some rows.
class Folder {
 public:
  static Folder& Get() {
    static Folder folder;
    return folder;
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  std::string live() const { return path_ + "/live"; }
  const std::vector<std::string>& base() const { return base_; }
  const Bytes& file(Part part) const { return files_[part]; }
  std::string PathOf(Part part) const {
    return live() + "/" +
           (part == kControl     ? kControlName
            : part == kPositions ? "positions"
                                 : TableFileName(0, kFirstFile));
  }
  // Replaces what the last input, or a writer, has left.
  void Restore() const {
    std::filesystem::remove_all(live());
    std::filesystem::create_directory(live());
    for (uint8_t part = 0; part < kParts; ++part) PutFile(PathOf(static_cast<Part>(part)), files_[part]);
    PutFile(live() + "/" + TableFileName(1, kFirstFile + 1), second_);
  }

 private:
  Folder() : path_(fuzz::PathOf("live")) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
    for (size_t table = 0; table < 2; ++table) {
      base_.push_back(path_ + "/" + std::to_string(table) + ".het");
      auto writer = serve::ServeWriter::Create(base_.back(), Schemas()[table], {});
      if (!writer.ok() || !writer.value()->Finish().ok()) Fail("no base");
    }
    const auto writer = LiveWriter::Open(live(), base_);
    if (!writer.ok() || !writer.value()->SetPartitions(2).ok()) Fail("no live files");
    for (Key key = 0; key < 20; ++key) {
      const float row[3] = {1, 2, 3};
      for (size_t table = 0; table < 2; ++table) {
        if (!writer.value()->Put(table, {&key, 1}, row).ok()) Fail("no row");
      }
      if (key % 5 == 0) writer.value()->Remove(0, {&key, 1});
    }
    if (!writer.value()->SetPosition(0, "12:34", 56).ok() || !writer.value()->SetPosition(1, "7:8", 9).ok() ||
        !writer.value()->Flip({1, "dense-1.safetensors", 1e9}).ok()) {
      Fail("no version");
    }
    for (uint8_t part = 0; part < kParts; ++part) files_[part] = ReadFile(PathOf(static_cast<Part>(part)));
    second_ = ReadFile(live() + "/" + TableFileName(1, kFirstFile + 1));
  }

  const std::string path_;
  std::vector<std::string> base_;
  Bytes files_[kParts];
  Bytes second_;  // the other table's file
};

template <typename Head>
void MakeHeadRight(const Bytes& good, Bytes* bytes) {
  Head wanted;
  std::memcpy(&wanted, good.data(), sizeof wanted);
  testing::ChangeHead<Head>(bytes, [&](Head* head) {
    head->base = wanted.base;
    head->run = wanted.run;
    head->file_bytes = bytes->size();
    if constexpr (std::is_same_v<Head, ControlHead>)
      std::memcpy(head->boot_id, wanted.boot_id, sizeof head->boot_id);
  });
}

void MakeRight(Part part, const Bytes& good, Bytes* bytes) {
  if (part == kControl) MakeHeadRight<ControlHead>(good, bytes);
  if (part == kTable) MakeHeadRight<TableHead>(good, bytes);
  if (part == kPositions) testing::ChangeHead<PositionRecord>(bytes, [](PositionRecord*) {});
}

void RequireServedOrDamaged(const Status& status) {
  if (!status.ok() && status.code() != Code::kDataLoss) Fail("a damaged file is reported as something else");
}

void ReadAll(LiveReader* reader) {
  std::vector<Key> ids = {-1, INT64_MIN, INT64_MAX};
  for (Key key = 0; key < 100; ++key) ids.push_back(key);
  RequireServedOrDamaged(reader->CountRows(0).status());
  for (size_t table = 0; table < reader->tables(); ++table) {
    std::vector<float> out(ids.size() * reader->base(table).dim());
    const LiveRead read{table, ids, out.data()};
    uint64_t seen = 0;
    RequireServedOrDamaged(reader->Lookup({&read, 1}, &seen));
  }
  RequireServedOrDamaged(reader->state().status());
}

// A writer serves what it was given, whatever it found.
void WriteSome(const Folder& folder, LiveReader* reader) {
  const auto opened = LiveWriter::Open(folder.live(), folder.base());
  if (!opened.ok()) Fail("a follower cannot begin anew");
  LiveWriter& writer = *opened.value();
  if (!writer.SetPartitions(2).ok()) Fail("no partitions");
  for (uint32_t p = 0; p < 2; ++p) {
    static_cast<void>(writer.position(p));
    if (!writer.SetPosition(p, "1:2", 3).ok()) Fail("no position");
  }
  const float row[3] = {4, 5, 6};
  for (Key key = 10; key < 40; ++key) {
    if (!writer.Put(0, {&key, 1}, row).ok()) Fail("no row");
  }
  const Key removed = 11;
  writer.Remove(0, {&removed, 1});
  if (!writer.Flip({7, "dense-7.safetensors", std::nullopt}).ok()) Fail("no version");
  bool has_removed = false, has_written = false;
  writer.ForEachKey(0, [&](Key key) {
    has_removed = has_removed || key == removed;
    has_written = has_written || key == 12;
  });
  if (has_removed || !has_written) Fail("other keys than were written");
  if (writer.version().number != 7) Fail("another version than was written");
  ReadAll(reader);
}

std::vector<Bytes> Seeds() {
  std::vector<Bytes> seeds;
  for (uint8_t part = 0; part < kParts; ++part) {
    Bytes bytes = Folder::Get().file(static_cast<Part>(part));
    if (part == kTable) {  // fewer slots and buckets: a fuzzer changes short inputs more often
      TableHead head;
      std::memcpy(&head, bytes.data(), sizeof head);
      Bytes small = bytes;
      head.buckets = 2;
      head.slots = 257;
      small.resize(SlotsOffset(head) + head.slots * head.row_bytes);
      std::memcpy(small.data(), &head, sizeof head);
      small.insert(small.begin(), part);
      seeds.push_back(small);
    }
    bytes.insert(bytes.begin(), part);
    seeds.push_back(bytes);
  }
  return seeds;
}

void Run(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const auto part = static_cast<Part>((data[0] & ~kAsItIs) % kParts);
  Bytes bytes(data + 1, data + size);
  const Folder& folder = Folder::Get();
  if ((data[0] & kAsItIs) == 0) MakeRight(part, folder.file(part), &bytes);
  folder.Restore();
  PutFile(folder.PathOf(part), bytes);
  const auto reader = LiveReader::Open(folder.live(), folder.base());
  if (!reader.ok()) Fail("no reader of good serving files");
  ReadAll(reader.value().get());
  WriteSome(folder, reader.value().get());
}

const bool registered = Register({"live", Run, Seeds});

}  // namespace
}  // namespace het::fuzz
