// Live files: what the writer wrote is read, through growth, restarts, damage and full disks.
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstddef>
#include <fstream>
#include <set>

#include "het_tf/core/base/checksum.h"
#include "het_tf/ext/serving/cc/follow/live_file.h"
#include "het_tf/ext/serving/cc/follow/live_format.h"
#include "tests/ext/serving/follow/live_files.h"

namespace het::follow {
namespace {

using Floats = std::vector<float>;

// Overwrites bytes of a file.
template <typename T>
void Damage(const std::string& path, size_t offset, const T& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(file) << path;
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(reinterpret_cast<const char*>(&bytes), sizeof bytes);
}

ControlHead ReadControl(const std::string& live) {
  ControlHead head;
  std::ifstream(live + "/control", std::ios::binary).read(reinterpret_cast<char*>(&head), sizeof head);
  return head;
}

// The first file of table 0, as a reader maps it.
std::shared_ptr<const LiveFile> OpenFile(const std::string& live, const std::string& base) {
  return LiveFile::Open(live, ReadControl(live), 0, 1, serve::ServeFile::Open(base).value()).value();
}

// Without a follower the base is served, and its age is unknown: a reader that failed would make an export
// useless before its first follower.
TEST_F(LiveFilesTest, TheBaseIsServedBeforeAnyFollower) {
  WriteBase("item", 3, 10, 1);
  auto reader = OpenReader({"item"});
  uint64_t seen = 1;
  EXPECT_EQ(Read(reader.get(), 0, {4}, &seen), Floats(3, 1));
  EXPECT_EQ(seen, 0u);
  EXPECT_EQ(Read(reader.get(), 0, {77}), Initial(MakeSchema("item", 3), 77));
  EXPECT_EQ(reader->state().value().version.number, 0u);
}

// A wrong row of any type, of a present, absent, removed or returned key, or of key 0, which unused places of
// the index have too.
TEST_F(LiveFilesTest, RowsOfEachTypeArePutRemovedAndPutAgain) {
  for (const auto type : {serve::RowType::kFloat32, serve::RowType::kFloat16, serve::RowType::kBfloat16,
                          serve::RowType::kInt8}) {
    WriteBase("item", 5, 100, 1, type);
    WriteBase("user", 2, 0, 1, type);
    auto writer = OpenWriter({"item", "user"});
    auto reader = OpenReader({"item", "user"});
    EXPECT_EQ(writer->Find(MakeSchema("user", 2)->id()), 1);
    EXPECT_EQ(writer->Find(5), -1);
    ASSERT_TRUE(Put(writer.get(), 0, 7, 2).ok());
    ASSERT_TRUE(Put(writer.get(), 0, -9, 3).ok());
    EXPECT_EQ(Read(reader.get(), 0, {7, -9, 8}), (Floats{2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1}));
    EXPECT_EQ(Read(reader.get(), 1, {0}), Initial(MakeSchema("user", 2), 0));
    ASSERT_TRUE(Put(writer.get(), 1, 5, 4).ok());
    EXPECT_EQ(Read(reader.get(), 1, {0}), Initial(MakeSchema("user", 2), 0));
    ASSERT_TRUE(Put(writer.get(), 1, 0, 6).ok());
    EXPECT_EQ(Read(reader.get(), 1, {0, 5}), (Floats{6, 6, 4, 4}));
    const Key removed[] = {7, 12345};
    writer->Remove(0, {removed, 2});
    EXPECT_EQ(writer->rows(0), 100u);
    EXPECT_EQ(Read(reader.get(), 0, {7}), Initial(MakeSchema("item", 5), 7));
    ASSERT_TRUE(Put(writer.get(), 0, 7, 8).ok());
    EXPECT_EQ(Read(reader.get(), 0, {7}), Floats(5, 8));
    writer = nullptr;
    std::filesystem::remove_all(Live());
  }
}

// Rows that are lost or mixed up when a file is full, or removed keys that return with their old rows.
TEST_F(LiveFilesTest, FilesGrowWhileTheyAreRead) {
  WriteBase("item", 2, 50, 1);
  auto writer = OpenWriter({"item"});
  auto reader = OpenReader({"item"});
  const Key gone = 3;
  writer->Remove(0, {&gone, 1});
  for (Key key = 100; key < 20000; ++key) {
    ASSERT_TRUE(Put(writer.get(), 0, key, static_cast<float>(key)).ok());
    if (key % 1000 == 0) {
      EXPECT_EQ(Read(reader.get(), 0, {key, 100, 49}), (Floats{float(key), float(key), 100, 100, 1, 1}));
    }
  }
  EXPECT_EQ(writer->rows(0), 49u + 19900);
  for (Key key = 100; key < 20000; ++key) {
    ASSERT_EQ(Read(reader.get(), 0, {key}), Floats(2, static_cast<float>(key)));
  }
  EXPECT_EQ(Read(reader.get(), 0, {gone}), Initial(MakeSchema("item", 2), gone));
  std::set<Key> keys;
  writer->ForEachKey(0, [&](Key key) { keys.insert(key); });
  EXPECT_EQ(keys.size(), writer->rows(0));
  EXPECT_EQ(keys.count(gone), 0u);
  // One file is left: the others' space is free again.
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Live())) {
    files += entry.path().extension() == ".live" ? 1 : 0;
  }
  EXPECT_EQ(files, 1u);
}

// Keys that come and go use up the places of the index: the file must be made anew, and not forever larger.
TEST_F(LiveFilesTest, TurnoverOfKeysDoesNotGrowTheFile) {
  WriteBase("item", 4, 100, 1);
  auto writer = OpenWriter({"item"});
  for (Key key = 1000; key < 50000; ++key) {
    ASSERT_TRUE(Put(writer.get(), 0, key, 2).ok());
    writer->Remove(0, {&key, 1});
  }
  EXPECT_EQ(writer->rows(0), 100u);
  for (const auto& entry : std::filesystem::directory_iterator(Live())) {
    EXPECT_LT(entry.file_size(), 80000u) << entry.path();
  }
}

// A restarted follower that begins anew shows base rows again, which are older than the version in force.
TEST_F(LiveFilesTest, ARestartedWriterContinues) {
  WriteBase("item", 2, 10, 1);
  auto reader = OpenReader({"item"});
  {
    auto writer = OpenWriter({"item"});
    ASSERT_TRUE(writer->SetPartitions(3).ok());
    EXPECT_EQ(writer->position(1), "");
    ASSERT_TRUE(writer->SetPosition(0, "5:10", 1000).ok());
    ASSERT_TRUE(writer->SetPosition(1, "18446744073709551615:18446744073709551615", 900).ok());
    EXPECT_EQ(writer->seen(), 0u);
    ASSERT_TRUE(writer->SetPosition(2, "7:1", 1100).ok());
    EXPECT_EQ(writer->seen(), 900u);
    ASSERT_TRUE(Put(writer.get(), 0, 3, 5).ok());
    ASSERT_TRUE(Put(writer.get(), 0, 99, 6).ok());
    ASSERT_TRUE(writer->Flip({4, "dense-x", 12.5}).ok());
    EXPECT_FALSE(writer->SetPosition(0, std::string(48, '1'), 1).ok());
    EXPECT_FALSE(writer->Flip({5, std::string(240, 'x'), {}}).ok());
  }
  uint64_t seen = 0;
  EXPECT_EQ(Read(reader.get(), 0, {3, 99}, &seen), (Floats{5, 5, 6, 6}));
  EXPECT_EQ(seen, 900u);
  auto writer = OpenWriter({"item"});
  EXPECT_EQ(writer->position(0), "5:10");
  EXPECT_EQ(writer->position(1), "18446744073709551615:18446744073709551615");
  EXPECT_EQ(writer->version().number, 4u);
  EXPECT_EQ(writer->version().dense_path, "dense-x");
  EXPECT_EQ(writer->version().trained_through, 12.5);
  EXPECT_EQ(writer->rows(0), 11u);
  ASSERT_TRUE(Put(writer.get(), 0, 3, 7).ok());
  EXPECT_EQ(Read(reader.get(), 0, {3, 99}), (Floats{7, 7, 6, 6}));
  EXPECT_EQ(reader->state().value().version.number, 4u);
  EXPECT_EQ(reader->state().value().version.trained_through, 12.5);
  ASSERT_TRUE(writer->SetPartitions(2).ok());  // the store was resharded
  EXPECT_EQ(writer->position(0), "");
  EXPECT_EQ(writer->seen(), 0u);
}

// Two followers of one directory would mix their rows.
TEST_F(LiveFilesTest, ASecondWriterIsRefused) {
  WriteBase("item", 2, 10, 1);
  auto writer = OpenWriter({"item"});
  const auto second = LiveWriter::Open(Live(), Files({"item"}));
  EXPECT_EQ(second.status().code(), Code::kFailedPrecondition);
  EXPECT_NE(second.status().message().find("process " + std::to_string(getpid())), std::string::npos)
      << second.status().message();
}

// Rows of another export, of an earlier boot, or of files with damaged bytes are served as this one's.
TEST_F(LiveFilesTest, AnotherBaseOrDamageBeginsAnew) {
  WriteBase("item", 2, 10, 1);
  const auto damage = [&](const std::string& name, size_t offset) {
    Damage(Live() + "/" + name, offset, 0x99999999u);
  };
  const auto table_file = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(Live())) {
      if (entry.path().extension() == ".live") return entry.path().filename().string();
    }
    return std::string();
  };
  const auto change = [&] {
    auto writer = OpenWriter({"item"});
    ASSERT_TRUE(writer->SetPartitions(1).ok());
    ASSERT_TRUE(writer->SetPosition(0, "1:1", 5).ok());
    ASSERT_TRUE(writer->Flip({2, "dense", {}}).ok());
    for (Key key = 0; key < 10; ++key) ASSERT_TRUE(Put(writer.get(), 0, key, 3).ok());
  };
  const auto is_anew = [&](const char* why, float value) {
    auto writer = OpenWriter({"item"});
    EXPECT_EQ(writer->version().number, 0u) << why;
    EXPECT_EQ(writer->seen(), 0u) << why;
    ASSERT_TRUE(writer->SetPartitions(1).ok());
    EXPECT_EQ(writer->position(0), "") << why;
    EXPECT_EQ(Read(OpenReader({"item"}).get(), 0, {1}), Floats(2, value)) << why;
  };
  change();
  WriteBase("item", 2, 11, 4);
  EXPECT_EQ(Read(OpenReader({"item"}).get(), 0, {1}), Floats(2, 4)) << "a reader takes another base's files";
  is_anew("another base", 4);
  const struct {
    const char* why;
    bool control;
    size_t offset;
  } parts[] = {{"magic", true, 0},
               {"boot", true, offsetof(ControlHead, boot_id)},
               {"checksum", true, offsetof(ControlHead, checksum)},
               {"head of the table", false, offsetof(TableHead, dim)},
               {"index", false, sizeof(TableHead) + sizeof(Key) * kPlaces}};
  for (const auto& part : parts) {
    change();
    if (std::string(part.why) == "index") {  // two keys with one slot
      for (size_t bucket = 0; bucket < 380; ++bucket) damage(table_file(), part.offset + 64 * bucket);
    } else {
      damage(part.control ? "control" : table_file(), part.offset);
    }
    if (std::string(part.why) == "boot") {  // not damaged: of another boot
      ControlHead head = ReadControl(Live());
      head.checksum = Checksum::Of(&head, offsetof(ControlHead, checksum));
      Damage(Live() + "/control", 0, head);
      EXPECT_EQ(Read(OpenReader({"item"}).get(), 0, {1}), Floats(2, 4)) << "a reader takes them";
    }
    is_anew(part.why, 4);
  }
  change();
  std::filesystem::resize_file(Live() + "/control", 100);
  is_anew("a short control file", 4);
}

// A torn position that is believed would skip changes for ever.
TEST_F(LiveFilesTest, ATornPositionIsUnknown) {
  WriteBase("item", 2, 10, 1);
  auto writer = OpenWriter({"item"});
  ASSERT_TRUE(writer->SetPartitions(1).ok());
  ASSERT_TRUE(writer->SetPosition(0, "123:456", 1000).ok());
  writer = nullptr;
  Damage(Live() + "/positions", 4, '9');
  writer = OpenWriter({"item"});
  EXPECT_EQ(writer->position(0), "");
}

// A reader in whose lifetime a follower begins anew, or comes for the first time, must find its files.
TEST_F(LiveFilesTest, AReaderFindsTheFilesOfALaterFollower) {
  WriteBase("item", 2, 10, 1);
  auto reader = OpenReader({"item"});
  EXPECT_EQ(Read(reader.get(), 0, {1}), Floats(2, 1));
  auto writer = OpenWriter({"item"});
  ASSERT_TRUE(Put(writer.get(), 0, 1, 2).ok());
  const auto until = [&](float value) {
    for (int i = 0; i < 400 && Read(reader.get(), 0, {1})[0] != value; ++i) usleep(10000);
    EXPECT_EQ(Read(reader.get(), 0, {1}), Floats(2, value));
  };
  until(2);
  writer = nullptr;
  std::filesystem::remove_all(Live());
  EXPECT_EQ(Read(reader.get(), 0, {1}), Floats(2, 2)) << "what is mapped serves on";
  writer = OpenWriter({"item"});
  ASSERT_TRUE(Put(writer.get(), 0, 1, 3).ok());
  until(3);
}

// A writer that was killed after it had named a new file, and before it had said so: readers would stay with
// the old file for ever.
TEST_F(LiveFilesTest, ReadersFindTheFileOfAWriterThatWasKilledInGrowth) {
  WriteBase("item", 2, 10, 1);
  auto writer = OpenWriter({"item"});
  auto reader = OpenReader({"item"});
  EXPECT_EQ(Read(reader.get(), 0, {1}), Floats(2, 1));
  for (Key key = 100; key < 2000; ++key) ASSERT_TRUE(Put(writer.get(), 0, key, 2).ok());
  writer = nullptr;
  Damage(Live() + "/control", offsetof(Control, generation), uint64_t{1});
  EXPECT_EQ(Read(reader.get(), 0, {1999}), Initial(MakeSchema("item", 2), 1999));
  writer = OpenWriter({"item"});
  EXPECT_EQ(Read(reader.get(), 0, {1999}), Floats(2, 2));
}

// A reader that stands still between finding a row and reading it: another key's row is in the slot by then.
TEST_F(LiveFilesTest, ARowThatMovedSinceItWasFoundIsFoundAgain) {
  WriteBase("item", 2, 10, 1);
  auto writer = OpenWriter({"item"});
  const auto file = OpenFile(Live(), Path("item.het"));
  const auto find = [&](Key key) {
    LiveFile::Found found;
    EXPECT_TRUE(file->Find(key, file->Home(key), &found));
    return found;
  };
  const auto read = [&](Key key, const LiveFile::Found& found) {
    Floats row(2);
    EXPECT_TRUE(file->Read(key, found, row.data()));
    return row;
  };
  ASSERT_TRUE(Put(writer.get(), 0, 3, 2).ok());
  const Key zero = 0;
  writer->Remove(0, {&zero, 1});
  const LiveFile::Found three = find(3), gone = find(0), absent = find(500);
  ASSERT_TRUE(Put(writer.get(), 0, 3, 4).ok());
  ASSERT_TRUE(Put(writer.get(), 0, 0, 5).ok());
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(Put(writer.get(), 0, 7, 6).ok());  // fills each free slot
  EXPECT_EQ(read(3, three), Floats(2, 4));
  EXPECT_EQ(read(0, gone), Floats(2, 5));
  EXPECT_EQ(read(500, absent), Initial(MakeSchema("item", 2), 500));
}

// Key 0 looks like an unused place of the index, which other keys take.
TEST_F(LiveFilesTest, KeyZeroIsNotTheKeyThatTakesItsPlace) {
  WriteBase("item", 2, 0, 1);
  auto writer = OpenWriter({"item"});
  const auto file = OpenFile(Live(), Path("item.het"));
  LiveFile::Found zero;
  ASSERT_TRUE(file->Find(0, file->Home(0), &zero));
  for (Key key = 1; key < 1000; ++key) ASSERT_TRUE(Put(writer.get(), 0, key, 6).ok());
  Floats row(2);
  ASSERT_TRUE(file->Read(0, zero, row.data()));
  EXPECT_EQ(row, Initial(MakeSchema("item", 2), 0));
}

// A slot number beyond the file would be read.
TEST_F(LiveFilesTest, ALookupThatMeetsADamagedIndexFails) {
  WriteBase("item", 2, 10, 1);
  ASSERT_NE(OpenWriter({"item"}), nullptr);
  auto reader = OpenReader({"item"});
  const std::string path = Live() + "/rows-000-1.live";
  for (uint64_t bucket = 0; bucket < std::filesystem::file_size(path) / 128; ++bucket) {
    Damage(path, kBucketsOffset + bucket * sizeof(Bucket) + sizeof(Key) * kPlaces, NextEntry(0, 1000000));
  }
  float row[2];
  uint64_t seen = 0;
  bool damaged = false;
  for (Key key = 0; key < 10; ++key) {
    const LiveRead read{0, {&key, 1}, row};
    damaged = damaged || reader->Lookup({&read, 1}, &seen).code() == Code::kDataLoss;
  }
  EXPECT_TRUE(damaged);
}

// float16 would serve infinity.
TEST_F(LiveFilesTest, ARowBeyondFloat16IsRefused) {
  WriteBase("item", 2, 10, 1, serve::RowType::kFloat16);
  auto writer = OpenWriter({"item"});
  EXPECT_EQ(Put(writer.get(), 0, 1, 70000).code(), Code::kInvalidArgument);
}

// A disk that fills up while a file grows: an error, and neither SIGBUS nor a lost row.
TEST_F(LiveFilesTest, AFullDiskLeavesTheFilesServing) {
  WriteBase("item", 8, 10, 1);
  auto writer = OpenWriter({"item"});
  auto reader = OpenReader({"item"});
  Key key = 100;
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 70000;  // the first file has 56 KB
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status;
  while (status.ok() && key < 100000) {
    status = Put(writer.get(), 0, key, static_cast<float>(key));
    ++key;
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), Code::kFile) << status.message();
  const Key last = key - 1;
  for (Key one = 100; one < last; ++one) {
    ASSERT_EQ(Read(reader.get(), 0, {one}), Floats(8, static_cast<float>(one)));
  }
  ASSERT_TRUE(Put(writer.get(), 0, 5, 3).ok()) << "rows that exist can change without space";
  EXPECT_EQ(Read(reader.get(), 0, {5}), Floats(8, 3));
  ASSERT_TRUE(Put(writer.get(), 0, last, 4).ok());
  EXPECT_EQ(Read(reader.get(), 0, {last}), Floats(8, 4));
}

// A writer killed at any instruction: every row is one that was written, no row goes back, and the next
// writer continues.
TEST_F(LiveFilesTest, AKilledWriterLeavesWholeRows) {
  constexpr Key kKeys = 300;
  constexpr uint32_t kDim = 33;
  WriteBase("item", kDim, kKeys / 2, 1);
  ASSERT_NE(OpenWriter({"item"}), nullptr);
  auto reader = OpenReader({"item"});
  std::vector<float> newest(kKeys, 0);
  float counter = 2;
  const std::vector<Key> keys = KeysTo(kKeys);
  const auto check = [&] {
    const Floats rows = Read(reader.get(), 0, keys);
    for (size_t i = 0; i < keys.size(); ++i) {
      const float value = rows[i * kDim];
      if (value < 1) {  // an initial row: absent until it is put, and after a removal
        ASSERT_EQ(Floats(&rows[i * kDim], &rows[(i + 1) * kDim]), Initial(MakeSchema("item", kDim), keys[i]));
        continue;
      }
      for (uint32_t d = 1; d < kDim; ++d) ASSERT_EQ(rows[i * kDim + d], value) << "a torn row of " << keys[i];
      ASSERT_GE(value, newest[i]) << "a row of " << keys[i] << " went back";
      newest[i] = value;
    }
  };
  for (int round = 0; round < 25; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      auto writer = LiveWriter::Open(Live(), Files({"item"}));
      if (!writer.ok()) _exit(3);
      for (float next = counter;; ++next) {
        for (Key key = 0; key < kKeys; ++key) {
          if (!Put(writer.value().get(), 0, key, next).ok()) _exit(4);
          // Keys that come once use up the index, so that the file is made anew again and again.
          const Key passing = 1000000 + static_cast<Key>(next) * kKeys + key;
          if (!Put(writer.value().get(), 0, passing, next).ok()) _exit(5);
          writer.value()->Remove(0, {&passing, 1});
          if (key % 7 == 0) writer.value()->Remove(0, {&key, 1});
        }
      }
    }
    ASSERT_GT(child, 0);
    for (int i = 0; i < 1 + round % 5; ++i) {
      check();
      usleep(static_cast<useconds_t>(1000 + 613 * round));
    }
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    check();
    for (const float value : newest) counter = std::max(counter, value + 1);
  }
  EXPECT_GT(counter, 25);
  auto writer = OpenWriter({"item"});
  for (const Key key : keys) ASSERT_TRUE(Put(writer.get(), 0, key, counter).ok());
  EXPECT_EQ(Read(reader.get(), 0, keys), Floats(kKeys * kDim, counter));
}

}  // namespace
}  // namespace het::follow
