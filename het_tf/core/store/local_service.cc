#include "het_tf/core/store/local_service.h"

#include <random>

#include "het_tf/core/wire/parts.h"

namespace het {
namespace {

constexpr size_t kSweptRows = 256;

thread_local uint64_t fixed_ids = 0;

}  // namespace

void FixRandomIds(uint64_t seed) { fixed_ids = seed; }

uint64_t RandomId() {
  if (fixed_ids != 0) return Mix64(fixed_ids++) | 1;
  std::random_device device;
  uint64_t id = 0;
  while (id == 0) id = (static_cast<uint64_t>(device()) << 32) | device();
  return id;
}

LocalService::LocalService(uint32_t partitions, uint64_t hash_seed, TimeFn time)
    : hash_seed_(hash_seed), time_(std::move(time)) {
  slots_.reserve(partitions);
  for (uint32_t i = 0; i < partitions; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->partition = std::make_unique<Partition>(PartitionId{i, partitions, hash_seed}, RandomId());
  }
}

Status LocalService::CreateTable(const Schema& schema) {
  const uint64_t epoch = RandomId();
  for (uint32_t i = 0; i < partitions(); ++i) {
    HET_RETURN_IF_ERROR(WithPartition(i, [&](Partition& p) { return p.CreateTable(schema, epoch, Now()); }));
  }
  return Status();
}

void LocalService::DropTable(uint64_t table) {
  for (uint32_t i = 0; i < partitions(); ++i) {
    WithPartition(i, [&](Partition& p) { p.DropTable(table); });
  }
}

void LocalService::ClearTable(uint64_t table) {
  const uint64_t epoch = RandomId();
  for (uint32_t i = 0; i < partitions(); ++i) {
    WithPartition(i, [&](Partition& p) { p.ClearTable(table, epoch); });
  }
}

void LocalService::Handle(Span<const uint8_t> frame, Bytes* reply) {
  AnswerFrame(frame, reply, [this](Request* q, ReplyWriter* replies) { HandlePart(q, replies); });
}

void LocalService::SweepNext() {
  const uint32_t partition = swept_.fetch_add(1, std::memory_order_relaxed) % partitions();
  WithPartition(partition, [this](Partition& p) { p.Sweep(Now(), kSweptRows, nullptr); });
}

void LocalService::HandlePart(Request* request, ReplyWriter* replies) {
  if (request->partition.index >= partitions()) {
    replies->Add(PartRefusal({request->partition.index, request->request_id}, FrameStatus::kElsewhere, ""));
    return;
  }
  WithPartition(request->partition.index, [&](Partition& p) {
    Handling how;
    how.now = Now();
    p.HandlePart(request, replies, how);
  });
}

}  // namespace het
