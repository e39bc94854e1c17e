#include "het_tf/ext/serving/cc/follow/live_reader.h"

#include <cstring>
#include <utility>

#include "het_tf/core/base/mapped_file.h"
#include "het_tf/ext/serving/cc/follow/boot_clock.h"
#include "het_tf/ext/serving/cc/follow/live_base.h"
#include "het_tf/ext/serving/cc/follow/live_file.h"
#include "het_tf/ext/serving/cc/follow/live_format.h"
#include "het_tf/ext/serving/cc/serve/row_lookup.h"

namespace het::follow {
namespace {

constexpr uint64_t kLookEvery = 1000000000;  // nanoseconds between two looks at the directory

constexpr MappedFile::Kind kControlFiles = LiveKind("control file of live files");

}  // namespace

// The files in force at one generation. Immutable, except that the follower changes the files' bytes.
class LiveView {
 public:
  // NotFound: the directory has no control file, or one of another base or boot.
  static Result<std::shared_ptr<const LiveView>> Open(const std::string& directory, const Base& base,
                                                      uint64_t base_checksum) {
    HET_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(directory + "/" + kControlName, kControlFiles));
    ControlHead head;
    HET_RETURN_IF_ERROR(mapped.ReadHead(kControlMagic, kFormat, &head));
    if (head.base != base_checksum || head.tables != base.size() ||
        BootId() != std::string(head.boot_id, strnlen(head.boot_id, sizeof head.boot_id))) {
      return Status(Code::kNotFound, "the live files in " + directory + " are of another export or boot");
    }
    auto view = std::make_shared<LiveView>();
    HET_RETURN_IF_ERROR(mapped.At<Control>(0, 1).status());
    HET_RETURN_IF_ERROR(mapped.At<uint64_t>(sizeof(Control), head.tables).status());
    view->control_ = std::make_shared<const MappedFile>(std::move(mapped));
    return view->Next(directory, base);
  }

  // The view of the present generation.
  Result<std::shared_ptr<const LiveView>> Next(const std::string& directory, const Base& base) const {
    const auto numbers = control_->At<uint64_t>(sizeof(Control), base.size()).value();
    for (;;) {
      auto next = std::make_shared<LiveView>();
      next->control_ = control_;
      next->generation_ = LoadShared(control().generation);
      Status status;
      for (uint32_t table = 0; table < base.size() && status.ok(); ++table) {
        const uint64_t number = LoadShared(numbers[table]);
        if (table < files_.size() && files_[table]->number() == number) {
          next->files_.push_back(files_[table]);
          continue;
        }
        auto file = LiveFile::Open(directory, control().head, table, number, base[table]);
        status = file.status();
        if (file.ok()) next->files_.push_back(std::move(file.value()));
      }
      if (status.ok()) return std::shared_ptr<const LiveView>(std::move(next));
      // The follower removes a file when the next one is in force.
      if (LoadShared(control().generation) == next->generation_) return status;
    }
  }

  bool current() const { return LoadShared(control().generation) == generation_; }
  uint64_t run() const { return control().head.run; }
  uint64_t generation() const { return generation_; }
  uint64_t seen() const { return LoadShared(control().seen); }
  std::optional<double> skew() const {
    const uint64_t skew = LoadShared(control().skew);
    if (skew == 0) return std::nullopt;
    return static_cast<double>(skew - 1) * 1e-9;
  }
  const LiveFile& file(size_t table) const { return *files_[table]; }

  Version version() const {
    for (;;) {
      const uint64_t flips = LoadShared(control().flips);
      VersionRecord record;
      std::memcpy(&record, &control().versions[flips & 1], sizeof record);
      AfterCopying();
      if (LoadShared(control().flips) != flips) continue;
      return VersionOf(record);
    }
  }

 private:
  const Control& control() const { return control_->At<Control>(0, 1).value()[0]; }

  std::shared_ptr<const MappedFile> control_;
  uint64_t generation_ = 0;
  std::vector<std::shared_ptr<const LiveFile>> files_;
};

LiveReader::LiveReader(std::string directory, Base base)
    : directory_(std::move(directory)), base_(std::move(base)), base_checksum_(BaseChecksum(base_)) {}

LiveReader::~LiveReader() = default;

Result<std::unique_ptr<LiveReader>> LiveReader::Open(const std::string& directory,
                                                     const std::vector<std::string>& base_files) {
  HET_ASSIGN_OR_RETURN(Base base, OpenBase(base_files));
  return std::unique_ptr<LiveReader>(new LiveReader(directory, std::move(base)));
}

Result<std::shared_ptr<const LiveView>> LiveReader::View() {
  const uint64_t now = BootNanoseconds();
  std::lock_guard<std::mutex> lock(mutex_);
  Status status;
  if (view_ != nullptr && !view_->current()) {
    auto next = view_->Next(directory_, base_);
    status = next.status();
    if (next.ok()) view_ = std::move(next.value());
  }
  const bool stands = view_ == nullptr || view_->seen() + kLookEvery < now;
  if (!status.ok() || (stands && looked_ + kLookEvery < now)) {
    looked_ = now;
    // Without usable live files, the present ones or the base serve on, and their age tells it.
    auto found = LiveView::Open(directory_, base_, base_checksum_);
    if (found.ok() && (view_ == nullptr || found.value()->run() != view_->run())) {
      view_ = std::move(found.value());
      status = Status();
    }
  }
  if (!status.ok()) return status;
  return view_;
}

Status LiveReader::Lookup(Span<const LiveRead> reads, uint64_t* seen) {
  HET_ASSIGN_OR_RETURN(const auto view, View());
  if (view == nullptr) {
    *seen = 0;
    std::vector<serve::RowRead<serve::ServeFile>> of_base;
    of_base.reserve(reads.size());
    for (const LiveRead& read : reads) of_base.push_back({base_[read.table].get(), read.ids, read.out});
    return serve::LookupRows<serve::ServeFile>({of_base.data(), of_base.size()});
  }
  *seen = view->seen();  // before the rows
  std::vector<serve::RowRead<LiveFile>> live;
  live.reserve(reads.size());
  for (const LiveRead& read : reads) live.push_back({&view->file(read.table), read.ids, read.out});
  return serve::LookupRows<LiveFile>({live.data(), live.size()});
}

Result<uint64_t> LiveReader::CountRows(size_t table) {
  HET_ASSIGN_OR_RETURN(const auto view, View());
  return view == nullptr ? base_[table]->size() : view->file(table).CountRows();
}

Result<LiveReader::State> LiveReader::state() {
  HET_ASSIGN_OR_RETURN(const auto view, View());
  if (view == nullptr) return State();
  return State{true, view->version(), view->seen(), view->skew(), view->generation()};
}

}  // namespace het::follow
