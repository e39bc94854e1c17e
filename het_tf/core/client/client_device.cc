// Tables whose cache is on a device (device/device_rows.h): reads that give rows away, and pushes of updates
// that come from there.
//
// A read for a device is a ReadOp like others, so its parts are sent, sent again and answered like theirs.
// What differs: there is no line that an answer goes into and that remembers, until the read is over, what
// has happened to it. So where a base or a row that was given already must not be trusted any more, because
// the partition came to life again, the table was loaded, or the row was pushed, the whole part is asked anew
// (AskAnew), as fetches.
#include <algorithm>
#include <utility>

#include "het_tf/core/client/client.h"

namespace het {
namespace {

// What a push makes of one partition.
struct NewFrames {
  std::vector<PushFrame> frames;
  size_t bytes = 0;  // of the last one's rows
};

// Adds the rows of a part to the frames of their partitions.
void Sort(const DevicePush::Part& part, TableCache* cache, size_t max_frame_bytes, Vector<NewFrames>* made) {
  const auto partitions = static_cast<uint32_t>(made->size());
  const TableSchema& schema = cache->schema();
  const Optimizer& optimizer = schema.optimizer();
  const size_t row_bytes = sizeof(Key) + optimizer.wire_floats() * sizeof(float);

  Vector<uint32_t> partition_of(part.n);
  Vector<size_t> end(partitions);
  for (size_t i = 0; i < part.n; ++i) {
    partition_of[i] = PartitionOf(cache->lines().Hash(part.keys[i]), partitions);
    ++end[partition_of[i]];
  }
  size_t sum = 0;
  for (size_t& count : end) count = std::exchange(sum, sum + count);
  Vector<uint32_t> order(part.n);
  for (uint32_t i = 0; i < part.n; ++i) order[end[partition_of[i]]++] = i;

  size_t next = 0;
  for (uint32_t p = 0; p < partitions; ++p) {
    auto& [frames, bytes] = (*made)[p];
    while (next < end[p]) {
      // A key has one place in a frame: more of the same table begins another.
      if (frames.empty() || frames.back().Of(schema.id()) != nullptr || bytes + row_bytes > max_frame_bytes) {
        frames.emplace_back();
        bytes = 0;
      }
      const size_t fit = max_frame_bytes > bytes ? (max_frame_bytes - bytes) / row_bytes : 0;
      const size_t rows = std::clamp<size_t>(fit, 1, end[p] - next);
      TablePush& push = *frames.back().Add(cache->shared_schema(), rows);
      for (const size_t stop = next + rows; next < stop; ++next) {
        const uint32_t i = order[next];
        push.keys.push_back(part.keys[i]);
        push.ticks.push_back(part.ticks[i]);
        const float* update = part.updates + i * optimizer.row_floats();
        push.wire.insert(push.wire.end(), update + optimizer.wire_begin(), update + optimizer.row_floats());
      }
      bytes += rows * row_bytes;
    }
  }
}

}  // namespace

Status Client::AddDeviceTable(const Schema& schema, const CacheConfig& config, DeviceLines* lines) {
  CheckFork();
  if (lines == nullptr)
    return InvalidArgument("table '" + schema->spec().name + "' needs a cache on a device");
  if (config.wire != RowFormat::kFloat32) {
    return InvalidArgument("table '" + schema->spec().name + "' has wire '" + RowFormatName(config.wire) +
                           "' and a cache on a device, whose rows travel as float32");
  }
  HET_RETURN_IF_ERROR(CheckPolicyName(config.policy));
  if (config.checks != "asked") {
    return InvalidArgument("table '" + schema->spec().name + "' has checks \"" + config.checks +
                           "\" and is cached on a device, whose rows are asked about; give checks \"asked\"");
  }
  if (forsaken_) return Forsaken(*schema);
  caches_[schema->id()] = std::make_unique<TableCache>(schema, config, transport_->id(0).hash_seed, lines);
  return Status();
}

Status Client::Forsaken(const TableSchema& schema) {
  return FailedPrecondition(
      "table '" + schema.spec().name +
      "': this process was forked from one that caches tables on a device, and a fork cannot use the device. "
      "Start processes before the first table is made, or start them with multiprocessing's 'spawn' method");
}

Status Client::CheckDevice(uint64_t table) {
  CheckFork();
  const auto found = caches_.find(table);
  if (found == caches_.end())
    return FailedPrecondition("a table that is cached on a device was dropped; create it again");
  const TableSchema& schema = found->second->schema();
  if (found->second->device() == nullptr)
    return FailedPrecondition("table '" + schema.spec().name +
                              "' is not cached on a device; use Read and Write");
  return forsaken_ ? Forsaken(schema) : Status();
}

// --- read

std::unique_ptr<ReadOp> Client::BeginReadForDevice(DeviceRead* read, bool training) {
  CheckFork();
  auto op = std::make_unique<ReadOp>();
  op->device = read;
  for (const DeviceRead::Part& part : read->parts) {
    op->error = CheckDevice(part.table);
    if (!op->error.ok()) return op;
  }
  device_reads_.push_back(op.get());
  try {
    ClassifyForDevice(op.get(), training);
  } catch (...) {
    static_cast<void>(FinishRead(op.get()));
    throw;
  }
  return op;
}

Status Client::ReadForDevice(DeviceRead* read, bool training) {
  return AwaitRead(BeginReadForDevice(read, training).get());
}

void Client::ClassifyForDevice(ReadOp* op, bool training) {
  ++op->open_parts;  // until all is known: a failure in here is not a finished read
  std::vector<ReadPartPtr> by_partition(links_.size());
  for (DeviceRead::Part& part : op->device->parts) {
    if (part.n == 0) continue;
    TableCache* cache = caches_.at(part.table).get();
    const bool filter = training && cache->config().admit_after > 1;
    ReadPart::Section section{cache, {}, {}, {}, &part};
    const auto fetches = static_cast<size_t>(std::count(part.bases, part.bases + part.n, kNoBase));
    section.fetches.reserve(fetches);
    section.fetch_at.reserve(fetches);
    section.checks.reserve(part.n - fetches);
    section.clocks.reserve(part.n - fetches);
    section.check_at.reserve(part.n - fetches);
    for (uint32_t i = 0; i < part.n; ++i) {
      part.came[i] = 0;
      part.admit[i] = training;
      if (part.bases[i] != kNoBase) {
        section.checks.push_back(part.keys[i]);
        section.clocks.push_back(part.bases[i]);
        section.check_at.push_back(i);
      } else {
        // Counted here, since a key may be asked for more than once until its row is there.
        if (filter) part.admit[i] = cache->Admit(cache->lines().Hash(part.keys[i]));
        section.fetches.push_back(part.keys[i]);
        section.fetch_at.push_back(i);
      }
    }
    ReadPartPtr& wanted = by_partition[part.partition];
    if (wanted == nullptr) wanted = std::make_shared<ReadPart>();
    wanted->sections.push_back(std::move(section));
  }
  for (uint32_t p = 0; p < by_partition.size(); ++p) {
    if (by_partition[p] == nullptr) continue;
    by_partition[p]->op = op;
    op->parts.push_back(by_partition[p]);
    links_[p].waiting.push_back(by_partition[p]);
    ++op->open_parts;
  }
  --op->open_parts;
}

void Client::AnswerForDevice(Link* link, uint64_t applied, const TableReply& answer,
                             const ReadPart::Section& section) {
  TableCache* cache = section.cache;
  const TableSchema& schema = cache->schema();
  const DeviceRead::Part& part = *section.device;
  ReplyRows rows(answer);
  auto give = [&](uint32_t at, Clock clock) {
    float* x = part.rows + at * schema.row_floats();
    if (const float* row = rows.Next(clock)) {
      std::copy_n(row, schema.row_floats(), x);
    } else {
      schema.InitRow(part.keys[at], x);
    }
    part.clocks[at] = clock + static_cast<Clock>(link->log.MergeOnto(schema.id(), part.keys[at], applied, x));
    part.came[at] = 1;
  };
  for (size_t i = 0; i < answer.refreshed.size(); ++i) {
    give(section.check_at[answer.refreshed[i]], answer.refreshed_clocks[i]);
  }
  for (size_t i = 0; i < section.fetches.size(); ++i) give(section.fetch_at[i], answer.fetched_clocks[i]);
}

// What reads for devices want of this partition is fetched, whatever was answered already; or that alone.
void Client::AskAnew(Link* link, bool answered_alone) {
  for (ReadOp* op : device_reads_) {
    if (!op->error.ok()) continue;
    for (ReadPartPtr& part : op->parts) {
      const bool answered = part->op == nullptr;
      if (part->sections[0].device->partition != link->partition || (answered_alone && !answered)) continue;
      try {
        auto anew = std::make_shared<ReadPart>();
        for (const ReadPart::Section& section : part->sections) {
          DeviceRead::Part* const rows = section.device;
          ReadPart::Section all{section.cache, {}, {}, Vector<Key>(rows->keys, rows->keys + rows->n), rows};
          all.fetch_at.resize(rows->n);
          for (uint32_t i = 0; i < rows->n; ++i) all.fetch_at[i] = i;
          anew->sections.push_back(std::move(all));
        }
        link->waiting.push_back(anew);
        // The old part may be on its way: its answer is for nobody.
        part->op = nullptr;
        anew->op = op;
        part = std::move(anew);
        op->open_parts += answered;
      } catch (const std::bad_alloc&) {
        op->error = Status(Code::kResourceExhausted, "out of memory while rows were asked for again");
        break;
      }
    }
  }
}

// --- push

Status Client::PushForDevice(const DevicePush& push) {
  for (const DevicePush::Part& part : push.parts) HET_RETURN_IF_ERROR(CheckDevice(part.table));
  Vector<NewFrames> made(links_.size());
  for (const DevicePush::Part& part : push.parts)
    Sort(part, caches_.at(part.table).get(), config_.max_frame_bytes, &made);
  // If memory ends in here, numbered frames stay empty, and that changes nothing.
  std::vector<std::pair<PushFrame*, PushFrame*>> numbered;
  for (Link& link : links_) {
    for (PushFrame& frame : made[link.partition].frames) numbered.emplace_back(NewFrame(&link), &frame);
  }
  for (auto& [frame, content] : numbered) frame->tables.swap(content->tables);

  for (const DevicePush::Part& part : push.parts) {
    Counters& counters = caches_.at(part.table)->counters();
    (part.evicted ? counters.evict_push : counters.bound_push) += part.n;
  }
  // Rows of answers from before this push lack it.
  for (Link& link : links_) {
    if (!made[link.partition].frames.empty()) AskAnew(&link, /*answered_alone=*/true);
  }
  try {
    Progress(0);
  } catch (const std::bad_alloc&) {  // the frames go out with the next call
  }
  return Status();
}

Status Client::WaitForDevice(uint64_t of_step) {
  CheckFork();
  for (const Link& link : links_) HET_RETURN_IF_ERROR(link.fatal);
  auto to_wait_for = [this](const TablePush& push, bool of_this_step) {
    const TableCache& cache = *caches_.at(push.schema->id());
    const int64_t bound = cache.config().push_bound;
    if (cache.device() == nullptr || bound == kUnbounded || push.keys.empty()) return false;
    // What this step pushed is all that its rows have unapplied, once earlier frames are applied.
    return !of_this_step ||
           std::any_of(push.ticks.begin(), push.ticks.end(), [=](uint32_t own) { return own > bound; });
  };
  auto unapplied = [&](const Link& link) {
    return link.log.AnyUnapplied([&](const PushFrame& frame) {
      return std::any_of(frame.tables.begin(), frame.tables.end(),
                         [&](const TablePush& push) { return to_wait_for(push, frame.number >= of_step); });
    });
  };
  try {
    HET_RETURN_IF_ERROR(
        Wait([&] { return std::none_of(links_.begin(), links_.end(), unapplied); }, "a push"));
    return MakeRoomForKept();
  } catch (const std::bad_alloc&) {
    return NoMemoryToPush();
  }
}

}  // namespace het
